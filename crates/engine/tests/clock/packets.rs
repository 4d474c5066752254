//! Attacks on exchanges: a relay between engine and reference clock delays, repeats and forges
//! answers.

use std::net::{SocketAddr, UdpSocket};
use std::thread::JoinHandle;
use std::time::Duration;

use super::{Agent, HOUR_NS, Reference, assert_lead, clock, engine_of, idle, next_snapshot};

/// Datagrams that wake the relay to end.
const END: &[u8] = b"end";

/// Relay between an engine and the reference clock.
struct Relay {
    port: u16,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// Passes each question and its answer to `answer`, which returns the datagrams for the engine.
    fn start(
        reference: &Reference,
        mut answer: impl FnMut(&[u8], Vec<u8>) -> Vec<Vec<u8>> + Send + 'static,
    ) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let onward = onward(reference);
        let relay = move || {
            let mut bytes = [0; 100];
            loop {
                let (length, engine) = socket.recv_from(&mut bytes).unwrap();
                if &bytes[..length] == END {
                    return;
                }
                let answers = answer(&bytes[..length], ask(&onward, &bytes[..length]).unwrap());
                send_all(&socket, &answers, engine);
            }
        };
        Self { port, thread: Some(std::thread::spawn(relay)) }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(END, ("127.0.0.1", self.port)).unwrap();
        self.thread.take().map(JoinHandle::join);
    }
}

fn onward(reference: &Reference) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(("127.0.0.1", reference.port)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    socket
}

fn ask(reference: &UdpSocket, question: &[u8]) -> Option<Vec<u8>> {
    reference.send(question).ok()?;
    let mut bytes = [0; 100];
    let length = reference.recv(&mut bytes).ok()?;
    Some(bytes[..length].to_vec())
}

fn send_all(socket: &UdpSocket, answers: &[Vec<u8>], engine: SocketAddr) {
    for answer in answers {
        // The engine may have ended.
        let _ = socket.send_to(answer, engine);
    }
}

#[test]
fn an_answer_that_takes_longer_than_its_question_is_inside_the_bound() {
    let reference = Reference::start();
    let delay = Duration::from_millis(20);
    let relay = Relay::start(&reference, move |_, answer| {
        std::thread::sleep(delay);
        vec![answer]
    });
    let mut agent = Agent::of(engine_of(relay.port, &HOUR_NS.to_string(), "0/1"), &idle());
    for _ in 0..5 {
        assert_lead(clock(&agent), -HOUR_NS);
        // The engine cannot determine the direction in which the time was lost.
        assert!(u128::from(clock(&agent).bound_ns) >= delay.as_nanos() / 2);
        next_snapshot(&mut agent);
    }
}

#[test]
fn late_repeated_and_forged_answers_are_ignored() {
    let reference = Reference::start();
    let mut before = Vec::new();
    let relay = Relay::start(&reference, move |question, answer| {
        let mut forged = answer.clone();
        // A bit of the arrival time of the question.
        forged[24] ^= 1;
        let longer = [&answer[..], b"x"].concat();
        let late = std::mem::replace(&mut before, answer.clone());
        vec![b"nonsense".to_vec(), question.to_vec(), forged, longer, late, answer.clone(), answer]
    });
    let mut agent = Agent::of(engine_of(relay.port, &HOUR_NS.to_string(), "0/1"), &idle());
    for _ in 0..5 {
        assert_lead(clock(&agent), -HOUR_NS);
        next_snapshot(&mut agent);
    }
}

#[test]
fn the_reference_answers_nothing_but_questions_and_never_with_more_than_it_got() {
    let reference = Reference::start();
    let (sender, questions) = std::sync::mpsc::channel();
    let relay = Relay::start(&reference, move |question, answer| {
        // The test uses only the first datagram.
        let _ = sender.send((question.to_vec(), answer.clone()));
        vec![answer]
    });
    let agent = Agent::of(engine_of(relay.port, "0", "0/1"), &idle());
    let (question, answer) = questions.recv().unwrap();
    drop(agent);
    assert_eq!(question.len(), answer.len());
    let socket = onward(&reference);
    let mut forged = question.clone();
    forged[8] ^= 1;
    for other in [&forged[..], &answer, &question[1..], &[&question[..], b"x"].concat(), b""] {
        socket.send(other).unwrap();
    }
    // The first answer belongs to this question, since datagrams of one socket stay in order here.
    let first = ask(&socket, &question).unwrap();
    assert_eq!(first[8..24], question[8..24]);
    socket.set_nonblocking(true).unwrap();
    assert!(socket.recv(&mut [0; 100]).is_err(), "there is a second answer");
}
