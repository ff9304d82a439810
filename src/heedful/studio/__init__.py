"""The studio: a web page over the lab's registry, runner and store. It decides nothing that they do not.

`heedful studio` serves it to this machine. `app.create` makes the application, `server.serve` runs it.
"""
