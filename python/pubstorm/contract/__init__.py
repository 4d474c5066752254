"""Values that controller and agents exchange, equal to the Rust side."""
