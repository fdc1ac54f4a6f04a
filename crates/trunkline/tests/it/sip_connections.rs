//! The connections that a gateway closes or refuses where an address has too many.

use crate::common::{Node, free_port, ms, temp_dir, wait_for};
use socket2::{Domain, Socket, Type};
use std::fmt::Display;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};

/// The office behind one address, a trunk, and a phone elsewhere.
const OFFICE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const TRUNK: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 4);

/// Number of connections that one address may have.
const SHARE: usize = 512;

/// A gateway with a registrar by UDP.
struct World {
    node: Node,
    gateway: SocketAddr,
    registrar: UdpSocket,
    _dir: tempfile::TempDir,
}

impl World {
    fn new() -> World {
        let dir = temp_dir();
        let mut node =
            Node { sealed: true, ..Node::new(dir.path(), 1, Ipv4Addr::LOCALHOST.into()) };
        let gateway = free_port(Ipv4Addr::LOCALHOST.into());
        node.write(&format!(
            "[sip]\nlisten = [\"udp:{gateway}\", \"tcp:{gateway}\"]\nports = \"42100-42199\"\n\
             allow = [\"127.0.0.0/8\"]\ntrust = [\"{TRUNK}\"]\n"
        ));
        node.start();
        let registrar = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        registrar.set_read_timeout(Some(ms(5_000))).expect("set");
        World { node, gateway, registrar, _dir: dir }
    }

    fn connect(&self, from: Ipv4Addr) -> TcpStream {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket.bind(&SocketAddr::new(IpAddr::V4(from), 0).into()).expect("bound");
        socket.connect(&self.gateway.into()).expect("connected");
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(ms(5_000))).expect("set");
        stream
    }

    /// A connection by which a phone has registered, and the path to it.
    fn register(&self, from: Ipv4Addr) -> (TcpStream, String) {
        let stream = self.connect(from);
        ask(&stream, "REGISTER", self.at());
        let request = self.answer("200 OK");
        assert!(read(&stream).starts_with("SIP/2.0 200"));
        let path = request.lines().find_map(|line| line.strip_prefix("Path: "));
        (stream, path.expect("a path").to_owned())
    }

    /// A connection that a request has used.
    fn used(&self, from: Ipv4Addr) -> TcpStream {
        let stream = self.connect(from);
        ask(&stream, "OPTIONS", self.gateway);
        assert!(read(&stream).starts_with("SIP/2.0 200"));
        stream
    }

    fn at(&self) -> SocketAddr {
        self.registrar.local_addr().expect("bound")
    }

    fn answer(&self, said: &str) -> String {
        let (text, from) = self.next();
        self.registrar.send_to(response(&text, said).as_bytes(), from).expect("sent");
        text
    }

    fn next(&self) -> (String, SocketAddr) {
        let mut buffer = [0; 4_096];
        let (n, from) = self.registrar.recv_from(&mut buffer).expect("a message");
        (String::from_utf8_lossy(&buffer[..n]).into_owned(), from)
    }
}

/// Sends a request for `to` over a connection.
fn ask(mut stream: &TcpStream, method: &str, to: impl Display) {
    let at = stream.local_addr().expect("connected");
    let to = to.to_string();
    let branch = to.replace([';', '='], "-");
    let message = format!(
        "{method} sip:b@{to} SIP/2.0\r\nVia: SIP/2.0/TCP {at};branch=z9hG4bK{at}{branch}\r\n\
         Max-Forwards: 9\r\nFrom: <sip:a@{at}>;tag=1\r\nTo: <sip:b@{to}>\r\nCall-ID: {at}\r\n\
         CSeq: 1 {method}\r\nContact: <sip:a@{at};transport=tcp>\r\nContent-Length: 0\r\n\r\n"
    );
    stream.write_all(message.as_bytes()).expect("written");
}

/// A response with the lines that it has in common with its request.
fn response(request: &str, said: &str) -> String {
    let kept = ["Via:", "From:", "Call-ID:", "CSeq:", "Record-Route:", "Contact:"];
    let kept = request.lines().filter(|line| kept.iter().any(|name| line.starts_with(name)));
    let lines: String = kept.map(|line| format!("{line}\r\n")).collect();
    format!("SIP/2.0 {said}\r\n{lines}To: <sip:b@h>;tag=2\r\nContent-Length: 0\r\n\r\n")
}

/// Reads what has come on a connection; empty if it is closed.
fn read(mut stream: &TcpStream) -> String {
    let mut buffer = [0; 4_096];
    let n = stream.read(&mut buffer).unwrap_or(0);
    String::from_utf8_lossy(&buffer[..n]).into_owned()
}

/// Whether a keep-alive is answered (RFC 5626, 4.4.1).
fn is_open(mut stream: &TcpStream) -> bool {
    stream.write_all(b"\r\n\r\n").is_ok() && read(stream).ends_with("\r\n")
}

#[test]
fn a_host_that_opens_many_closes_none_that_a_neighbour_needs() {
    let world = World::new();
    let (registered, path) = world.register(OFFICE);
    let (caller, idle) = (world.connect(OFFICE), world.used(OFFICE));
    ask(&caller, "INVITE", world.at());
    world.answer("180 Ringing");
    while !read(&caller).contains("SIP/2.0 180") {}
    // A call for the registered phone.
    let (at, gateway) = (world.at(), world.gateway);
    let invite = format!(
        "INVITE sip:a@{OFFICE};transport=tcp SIP/2.0\r\nVia: SIP/2.0/UDP {at};branch=z9hG4bKin\r\n\
         Max-Forwards: 9\r\nRoute: {path}\r\nFrom: <sip:b@{at}>;tag=1\r\nTo: <sip:a@h>\r\n\
         Call-ID: in\r\nCSeq: 1 INVITE\r\nContact: <sip:b@{at}>\r\nContent-Length: 0\r\n\r\n"
    );
    world.registrar.send_to(invite.as_bytes(), gateway).expect("sent");
    let rings = read(&registered);
    assert!(rings.starts_with("INVITE "), "{rings}");
    let mut phone = &registered;
    phone.write_all(response(&rings, "180 Ringing").as_bytes()).expect("written");
    while !world.next().0.starts_with("SIP/2.0 180") {}
    let (other, _) = world.register(OFFICE);

    let many: Vec<TcpStream> = (0..SHARE + 88).map(|_| world.used(OFFICE)).collect();
    for (needed, why) in
        [(&registered, "a call rings on it"), (&caller, "its call rings"), (&other, "registered")]
    {
        assert!(is_open(needed), "{why}");
    }
    phone.write_all(response(&rings, "200 OK").as_bytes()).expect("written");
    let (answer, _) = world.next();
    assert!(answer.starts_with("SIP/2.0 200"), "{answer}");
    assert!(!is_open(&idle) && !is_open(&many[0]), "they were idle");
    assert!(many[200..].iter().all(is_open));
}

#[test]
fn a_phone_more_than_an_address_may_have_closes_no_registered_one() {
    let world = World::new();
    let mut phones: Vec<TcpStream> = (1..SHARE).map(|_| world.register(OFFICE).0).collect();
    // A connection without any message gives way.
    let silent = world.connect(OFFICE);
    phones.push(world.register(OFFICE).0);
    assert!(!is_open(&silent));
    for _ in 0..20 {
        let refused = world.connect(OFFICE);
        assert!(!is_open(&refused));
    }
    assert!(phones.iter().all(is_open));
    assert!(is_open(&world.used(ELSEWHERE)), "another address has room");
    drop(phones.pop());
    wait_for("the place that is free", || is_open(&world.connect(OFFICE)).then_some(()));
    assert!(phones.iter().all(is_open));
    drop(world.node);
}

#[test]
fn requests_of_phones_close_no_connection_of_a_trunk() {
    let world = World::new();
    let trunk = world.used(TRUNK);
    let phone = world.connect(OFFICE);
    // Each has the gateway make a connection to the trunk's address, and none is answered.
    let listeners: Vec<TcpListener> =
        (0..SHARE + 8).map(|_| TcpListener::bind((TRUNK, 0)).expect("a port")).collect();
    let made = listeners.iter().map(|listener| {
        let to = listener.local_addr().expect("bound");
        ask(&phone, "OPTIONS", format_args!("{to};transport=tcp"));
        listener.accept().expect("a connection")
    });
    let made: Vec<_> = made.collect();
    assert!(is_open(&trunk), "phones have none of its connections closed");
    assert!(is_open(&world.used(TRUNK)), "the trunk has room");
    drop((phone, made));
}
