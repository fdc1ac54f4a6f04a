//! The connections that a gateway closes where one address has too many.

use crate::common::{Node, free_port, ms, temp_dir};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};

fn connect(gateway: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(gateway).expect("connected");
    stream.set_read_timeout(Some(ms(5_000))).expect("set");
    stream
}

/// Sends a request for `to` over a connection.
fn ask(mut stream: &TcpStream, method: &str, to: SocketAddr) {
    let at = stream.local_addr().expect("connected");
    let message = format!(
        "{method} sip:b@{to} SIP/2.0\r\nVia: SIP/2.0/TCP {at};branch=z9hG4bK{at}\r\n\
         Max-Forwards: 9\r\nFrom: <sip:a@{at}>;tag=1\r\nTo: <sip:b@{to}>\r\nCall-ID: {at}\r\n\
         CSeq: 1 {method}\r\nContact: <sip:a@{at};transport=tcp>\r\nContent-Length: 0\r\n\r\n"
    );
    stream.write_all(message.as_bytes()).expect("written");
}

/// Reads what has come on a connection; empty if it is closed.
fn read(mut stream: &TcpStream) -> String {
    let mut buffer = [0; 4_096];
    let n = stream.read(&mut buffer).unwrap_or(0);
    String::from_utf8_lossy(&buffer[..n]).into_owned()
}

/// Answers the next request that comes by UDP.
fn answer(server: &UdpSocket, said: &str) {
    let mut buffer = [0; 4_096];
    let (n, from) = server.recv_from(&mut buffer).expect("a request");
    let text = String::from_utf8_lossy(&buffer[..n]);
    let kept = ["Via:", "From:", "Call-ID:", "CSeq:", "Record-Route:", "Contact:"];
    let kept = text.lines().filter(|line| kept.iter().any(|name| line.starts_with(name)));
    let lines: String = kept.map(|line| format!("{line}\r\n")).collect();
    let message =
        format!("SIP/2.0 {said}\r\n{lines}To: <sip:b@h>;tag=2\r\nContent-Length: 0\r\n\r\n");
    server.send_to(message.as_bytes(), from).expect("sent");
}

/// Whether a keep-alive is answered (RFC 5626, 4.4.1).
fn is_open(mut stream: &TcpStream) -> bool {
    stream.write_all(b"\r\n\r\n").is_ok() && read(stream).ends_with("\r\n")
}

#[test]
fn a_host_that_opens_many_closes_none_that_a_neighbour_needs() {
    let dir = temp_dir();
    let mut node = Node { sealed: true, ..Node::new(dir.path(), 1, Ipv4Addr::LOCALHOST.into()) };
    let gateway = free_port(Ipv4Addr::LOCALHOST.into());
    node.write(&format!(
        "[sip]\nlisten = [\"udp:{gateway}\", \"tcp:{gateway}\"]\nports = \"42100-42199\"\n"
    ));
    node.start();
    let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    server.set_read_timeout(Some(ms(5_000))).expect("set");
    let at = server.local_addr().expect("bound");

    let [registered, rings, idle] = [(); 3].map(|()| connect(gateway));
    ask(&registered, "REGISTER", at);
    answer(&server, "200 OK");
    assert!(read(&registered).starts_with("SIP/2.0 200"));
    ask(&rings, "INVITE", at);
    answer(&server, "180 Ringing");
    while !read(&rings).contains("SIP/2.0 180") {}
    let many: Vec<TcpStream> = (0..600)
        .map(|_| {
            let stream = connect(gateway);
            ask(&stream, "OPTIONS", gateway);
            assert!(read(&stream).starts_with("SIP/2.0 200"));
            stream
        })
        .collect();
    assert!(is_open(&registered), "a phone is reached by it");
    assert!(is_open(&rings), "a call rings on it");
    assert!(!is_open(&idle) && !is_open(&many[0]), "they were idle");
    assert!(many[200..].iter().all(is_open));
}
