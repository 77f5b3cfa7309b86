"""How sums over the parties' rows reach the server: a file a source.

The sources are ``sums``, ``completed``, ``by_party``, ``released`` and ``joined`` (whose party's
side is ``clients.columns``). They share ``products``, ``rows`` and ``row_ids``.
"""
