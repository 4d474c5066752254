//! ZMTP 3.1 without input and output.
