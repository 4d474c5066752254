//! Items on a simulated connection, and actions of its other end.

/// An item that arrives at an end.
#[derive(Debug)]
pub enum Arrival {
    /// Bytes.
    Bytes(Vec<u8>),
    /// The end of the stream.
    End,
}

/// An action of the broker on a connection.
#[derive(Debug)]
pub enum Output {
    /// Writes bytes.
    Bytes(Vec<u8>),
    /// Closes it behind what it has written.
    End,
    /// Resets it.
    Reset,
}
