"""The verbs of the `heedful` command: one dataclass each, its fields the options, its docstring the help."""
