"""How sums over the parties' rows reach the server: a file a source.

The sources are ``sums``, ``completed``, ``by_party``, ``released`` and ``joined`` (whose party's
side is ``clients.columns``). They share ``products``, ``rows`` and ``row_ids``.

A source has its exchanges, a generator that returns ``Products`` of the rows [1, z] of a ``Design``
(``core/blocks/design.py``), and the functions that answer at a party, marked ``@answers(...)``,
which take the party's rows (``sources/rows.py``). The client takes them as methods; the contract of
the method (``protocol/``) says when each exchange takes place. A source knows no solver and no
graph. Weights of rows become effective rows in ``Products``: no solver knows of them.
"""
