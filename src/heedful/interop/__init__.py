"""Drop-ins: other libraries' layers, signatures and weights, computed by heedful."""
