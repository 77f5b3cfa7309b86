"""The HTML page of a run: its content as plain values, and the files that show it.

`payload` says what the page holds and knows nothing of HTML; ``page.js`` shows it and knows nothing
of methods. ``libraries`` holds a JavaScript library, see the README there.
"""
