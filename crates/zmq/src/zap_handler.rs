//! The ZAP handler of a context (ZeroMQ RFC 27): a thread that decides which subscribers may
//! connect to a publisher with a name and a password.

use std::thread::Builder;

use zmq::{Context, Socket};

use crate::setup::Result;

const ENDPOINT: &str = "inproc://zeromq.zap.01";
const VERSION: &[u8] = b"1.0";
/// Frames of a request before the credentials: version, request id, domain, address, identity,
/// mechanism.
const HEAD_FRAMES: usize = 6;

/// Starts the thread that answers every request of a context, until the process ends.
///
/// # Errors
/// libzmq's, when the context has a handler already, and the kernel's, when there is no thread.
pub fn start(context: &Context, username: String, password: String) -> Result<()> {
    let socket = context.socket(zmq::REP)?;
    socket.bind(ENDPOINT)?;
    let serve = move || while answer(&socket, &username, &password).is_ok() {};
    Builder::new().name("zap_handler".into()).spawn(serve)?;
    Ok(())
}

fn answer(socket: &Socket, username: &str, password: &str) -> zmq::Result<()> {
    let request = socket.recv_multipart(0)?;
    let id = request.get(1).map_or(&[][..], Vec::as_slice);
    let credentials = request.get(HEAD_FRAMES..).unwrap_or_default();
    let is_known = credentials == [username.as_bytes(), password.as_bytes()];
    let (code, text): (&[u8], &[u8]) = if is_known { (b"200", b"OK") } else { (b"400", b"") };
    let user: &[u8] = if is_known { username.as_bytes() } else { b"" };
    socket.send_multipart([VERSION, id, code, text, user, b""], 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_right_name_with_the_right_password_is_accepted() {
        let context = Context::new();
        start(&context, "ann".into(), "secret".into()).unwrap();
        let asking = context.socket(zmq::REQ).unwrap();
        asking.connect(ENDPOINT).unwrap();
        for (name, password, code) in
            [("ann", "secret", "200"), ("ann", "Secret", "400"), ("bob", "secret", "400")]
        {
            let head = ["1.0", "7", "", "127.0.0.1", "", "PLAIN", name, password];
            asking.send_multipart(head, 0).unwrap();
            let reply = asking.recv_multipart(0).unwrap();
            assert_eq!(reply[..3], [b"1.0".to_vec(), b"7".to_vec(), code.into()]);
            assert_eq!(reply.len(), 6);
        }
    }
}
