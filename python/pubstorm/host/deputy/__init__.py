"""Servers on another host. A deputy is a program there that starts, signals and watches servers for
the controller: a filter of JSON lines, which needs Python only. `archive` packs it, `remote` is the
controller's side."""
