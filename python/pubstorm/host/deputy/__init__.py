"""Servers on another host. A deputy is a program there that starts, signals and watches servers for
the controller: a filter of JSON lines, which needs Python only. `remote` packs it, and is the
controller's side."""
