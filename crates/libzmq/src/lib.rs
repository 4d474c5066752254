//! The sources of libzmq for `zmq-sys`. Its build script asks for zeromq-src 0.2, whose last
//! version has libzmq 4.3.4. Version 0.3 has 4.3.5 and the same interface.

pub use sources::Build;
