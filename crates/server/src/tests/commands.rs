//! The classic commands over TCP: exact replies, order, and errors after which the next command is
//! decoded correctly.
//!
//! A command that is added gets its lines here; its meta form is in [`meta`](super::meta).

use super::*;

#[test]
fn every_command_answers_as_memcached_does() {
    let server = TestServer::start(|_| {});
    let mut client = server.connect();
    for (text, expected) in [
        ("get k\r\n", "END\r\n"),
        ("set k 5 0 5\r\nhello\r\n", "STORED\r\n"),
        ("get k\r\n", "VALUE k 5 5\r\nhello\r\nEND\r\n"),
        ("gets k other\r\n", "VALUE k 5 5 1\r\nhello\r\nEND\r\n"),
        ("add k 0 0 1\r\nx\r\n", "NOT_STORED\r\n"),
        ("add new 0 0 0\r\n\r\n", "STORED\r\n"),
        ("get k new\r\n", "VALUE k 5 5\r\nhello\r\nVALUE new 0 0\r\n\r\nEND\r\n"),
        ("replace none 0 0 1\r\nx\r\n", "NOT_STORED\r\n"),
        ("replace new 0 0 1\r\n5\r\n", "STORED\r\n"),
        ("append k 9 0 1\r\n!\r\n", "STORED\r\n"),
        ("prepend k 9 0 2\r\n> \r\n", "STORED\r\n"),
        ("append none 0 0 1\r\nx\r\n", "NOT_STORED\r\n"),
        ("get k\r\n", "VALUE k 5 8\r\n> hello!\r\nEND\r\n"),
        ("cas k 0 0 1 1\r\nx\r\n", "EXISTS\r\n"),
        ("cas none 0 0 1 1\r\nx\r\n", "NOT_FOUND\r\n"),
        ("incr new 6\r\n", "11\r\n"),
        ("decr new 2\r\n", "9\r\n"),
        ("get new\r\n", "VALUE new 0 2\r\n9 \r\nEND\r\n"),
        ("decr new 10\r\n", "0\r\n"),
        ("incr new 18446744073709551615\r\n", "18446744073709551615\r\n"),
        ("incr new 1\r\n", "0\r\n"),
        ("incr none 1\r\n", "NOT_FOUND\r\n"),
        ("incr k 1\r\n", "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"),
        ("touch k 100\r\n", "TOUCHED\r\n"),
        ("touch none 100\r\n", "NOT_FOUND\r\n"),
        ("gat 0 k none\r\n", "VALUE k 5 8\r\n> hello!\r\nEND\r\n"),
        ("touch k -1\r\n", "TOUCHED\r\n"),
        ("get k\r\n", "END\r\n"),
        ("set k 0 -1 1\r\nx\r\n", "STORED\r\n"),
        ("get k\r\n", "END\r\n"),
        ("delete new 0\r\n", "DELETED\r\n"),
        ("delete new\r\n", "NOT_FOUND\r\n"),
        ("verbosity 0\r\n", "OK\r\n"),
        ("flush_all\r\n", "OK\r\n"),
        ("stats nonsense\r\n", "ERROR\r\n"),
    ] {
        client.exchange(text, expected);
    }
    client.0.write_all(b"version\r\nquit\r\nget k\r\n").unwrap();
    client.expect(&format!("VERSION {}\r\n", crate::version::VERSION));
    assert_eq!(client.0.read(&mut [0]).unwrap(), 0, "quit closes");
}

#[test]
fn silent_pipelined_and_split_commands_answer_in_order() {
    let server = TestServer::start(|_| {});
    let mut client = server.connect();
    client.exchange(
        "set a 0 0 1 noreply\r\n1\r\nincr a 4 noreply\r\nget a\r\nadd a 0 0 1 noreply\r\nx\r\nappend a 0 0 1\r\n0\r\n\
         delete b noreply\r\ntouch a 0 noreply\r\nflush_all 1000 noreply\r\nverbosity 0 noreply\r\nget a\r\n",
        "VALUE a 0 1\r\n5\r\nEND\r\nSTORED\r\nVALUE a 0 2\r\n50\r\nEND\r\n",
    );
    for byte in b"set a 0 0 3\r\nabc\r\nget a\r\n" {
        client.0.write_all(&[*byte]).unwrap();
    }
    client.expect("STORED\r\nVALUE a 0 3\r\nabc\r\nEND\r\n");
}

#[test]
fn a_clients_errors_leave_it_in_step() {
    let server = TestServer::start(|settings| settings.item_bytes_max = 1024);
    let mut client = server.connect();
    client.exchange("set k 0 0 3\r\nabc\r\n", "STORED\r\n");
    client.exchange("set k 0 0 3\r\nabcd\r\n", "CLIENT_ERROR bad data chunk\r\nERROR\r\n");
    client.exchange("get k\r\n", "VALUE k 0 3\r\nabc\r\nEND\r\n");
    let large = "x".repeat(5000);
    client.exchange(&format!("add k 0 0 5000\r\n{large}\r\n"), "SERVER_ERROR object too large for cache\r\n");
    client.exchange("get k\r\n", "VALUE k 0 3\r\nabc\r\nEND\r\n");
    client.exchange(&format!("set k 0 0 5000\r\n{large}\r\n"), "SERVER_ERROR object too large for cache\r\n");
    client.exchange("get k\r\n", "END\r\n");
    let almost = "x".repeat(900);
    client.exchange(&format!("set k 0 0 900\r\n{almost}\r\n"), "STORED\r\n");
    client.exchange(&format!("append k 0 0 900\r\n{almost}\r\n"), "NOT_STORED\r\n");

    let mut other = server.connect();
    other.0.write_all(&vec![b'x'; 3000]).unwrap();
    other.expect("CLIENT_ERROR line too long\r\n");
    assert_eq!(other.0.read(&mut [0]).unwrap_or(0), 0, "the connection is closed after a line too long");
    client.exchange("get none\r\n", "END\r\n");
}

#[test]
fn a_key_may_have_control_characters() {
    let server = TestServer::start(|_| {});
    let mut client = server.connect();
    for key in ["\t", "a\x01b", "\x1f", "\x7f", "a\rb"] {
        client.exchange(&format!("set {key} 0 0 1\r\nx\r\n"), "STORED\r\n");
        client.exchange(&format!("get {key}\r\n"), &format!("VALUE {key} 0 1\r\nx\r\nEND\r\n"));
        client.exchange(&format!("mg {key} v k\r\n"), &format!("VA 1 k{key}\r\nx\r\n"));
    }
    // Listings show such keys encoded, so each key stays on its line.
    client.0.write_all(b"lru_crawler metadump all\r\n").unwrap();
    let mut lines = Vec::new();
    while lines.last().is_none_or(|line: &String| line != "END\r\n") {
        lines.push(client.line());
    }
    assert_eq!((lines.len(), &*lines[0]), (7, "OK\r\n"), "{lines:?}");
    assert!(lines.iter().any(|line| line.starts_with("key=a%0Db ")), "{lines:?}");
    client.exchange("set a\0b 0 0 1\r\nx\r\n", "CLIENT_ERROR bad command line format\r\n");
}

/// A close with unread input would reset the connection, and the client might lose the reply.
#[test]
fn a_client_that_sends_on_after_a_line_too_long_gets_the_reply_and_an_end() {
    let server = TestServer::start(|_| {});
    let mut client = server.connect();
    // More than one read of the server.
    client.0.write_all(&[b'x'; 200_000]).unwrap();
    client.0.shutdown(std::net::Shutdown::Write).unwrap();
    let mut reply = String::new();
    client.0.read_to_string(&mut reply).unwrap();
    assert_eq!(reply, "CLIENT_ERROR line too long\r\n");
}
