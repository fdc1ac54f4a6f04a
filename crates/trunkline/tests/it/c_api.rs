//! The C interface: programs in C and Python between two real nodes, also under valgrind and
//! AddressSanitizer, and the symbols that the shared library exports.

use crate::common::keys::{CLIENT, LIMITED, STRANGER, identity, key_file};
use crate::common::{Chain, Ended, Process, Setup, free_port, run, temp_dir, wait_for};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::net::Ipv4Addr;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("crates/trunkline")
}

/// The folder with libtrunkline.a and libtrunkline.so, built as `make install`
/// does but with the profile that the tests are built with.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("c-library");
        let script = root().join("scripts/c-library.sh");
        let folder = Path::new(env!("CARGO_BIN_EXE_trunkline")).parent().expect("a folder");
        let profile = match folder.file_name().and_then(|name| name.to_str()) {
            Some("debug") => "dev",
            profile => profile.expect("the name of a profile"),
        };
        let mut build = Command::new(script);
        // A folder of its own: another cargo may hold that of the tests locked for minutes.
        build.env("CARGO_TARGET_DIR", out.with_extension("target"));
        let built = build.arg(&out).args([profile, "--offline"]).output().expect("bash runs");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        out
    })
}

/// Runs a tool and returns its standard output; it must succeed.
#[track_caller]
fn output(command: &mut Command) -> String {
    let ended = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let stderr = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{command:?}: {stderr}");
    assert_eq!(stderr, "", "{command:?}");
    String::from_utf8(ended.stdout).expect("text")
}

/// Whether `program` is installed; if not, prints that the test is skipped. CI, where no test may
/// be skipped, installs it.
fn installed(program: &str) -> bool {
    let there = Command::new(program).arg("--version").output().is_ok_and(|o| o.status.success());
    if !there {
        println!("skipped: {program} is not installed");
        assert!(std::env::var_os("CI").is_none(), "{program} must be installed in CI");
    }
    there
}

fn cc() -> Command {
    let mut cc = Command::new("cc");
    cc.args(["-Wall", "-Wextra", "-Werror", "-std=c99", "-D_XOPEN_SOURCE=700", "-g", "-I"]);
    cc.arg(root().join("include"));
    cc
}

/// Compiles a program against the shared library.
#[track_caller]
fn compile(source: &str, out: &Path) {
    let source = root().join(source);
    output(
        cc().arg(source)
            .arg("-o")
            .arg(out)
            .arg("-L")
            .arg(library())
            .args(["-ltrunkline", "-lpthread"]),
    );
}

/// A command that finds the shared library.
fn linked(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", library());
    command
}

fn valgrind(program: &Path) -> Command {
    let mut command = linked("valgrind");
    command.args([
        "--quiet",
        "--error-exitcode=9",
        "--leak-check=full",
        "--show-leak-kinds=definite",
    ]);
    let known = root().join("crates/trunkline/tests/c_api/valgrind.supp");
    command.arg(format!("--suppressions={}", known.display()));
    // Valgrind runs one thread at a time; fair scheduling gives each its turn.
    command.args(["--errors-for-leak-kinds=definite", "--fair-sched=try"]).arg(program);
    command
}

#[track_caller]
fn succeeded(ended: &Ended) {
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert_eq!(ended.stderr, "");
}

/// Runs the program of errors.c against two nodes.
fn go_through_the_errors(mut program: Command) {
    let chain = Chain::of(2);
    let dir = temp_dir();
    program.arg(&chain.nodes[0].socket).arg(&chain.nodes[1].socket).arg(dir.path());
    go_through(chain, program);
}

/// Runs a program to a successful end, stopping and starting the first node on its request.
fn go_through(mut chain: Chain, mut program: Command) {
    let mut process = Process::start(&mut program);
    for word in ["stop", "start"] {
        wait_for(word, || {
            assert!(process.is_running(), "{}", process.stderr());
            process.stdout().contains(word).then_some(())
        });
        match word {
            "stop" => chain.first().crash(),
            _ => chain.first().start(),
        }
        process.tell("done");
    }
    let code = process.wait().code();
    let (stdout, stderr) = process.rest();
    succeeded(&Ended { code, stdout, stderr });
}

#[test]
fn every_error_is_an_errno() {
    let dir = temp_dir();
    let program = dir.path().join("errors");
    compile("crates/trunkline/tests/c_api/errors.c", &program);
    go_through_the_errors(linked(&program));
}

#[test]
fn no_error_touches_memory_that_it_should_not() {
    let dir = temp_dir();
    let program = dir.path().join("errors");
    compile("crates/trunkline/tests/c_api/errors.c", &program);
    if installed("valgrind") {
        go_through_the_errors(valgrind(&program));
    }
}

/// The program of streams.c plays the node too.
#[test]
fn streams_have_their_errors_too() {
    let dir = temp_dir();
    let program = dir.path().join("streams");
    compile("crates/trunkline/tests/c_api/streams.c", &program);
    let run_with = |mut command: Command| {
        let place = temp_dir();
        succeeded(&run(command.arg(place.path())));
    };
    run_with(linked(&program));
    if installed("valgrind") {
        run_with(valgrind(&program));
    }
    if sanitized("crates/trunkline/tests/c_api/streams.c", &program) {
        let mut command = Command::new(&program);
        command.env("ASAN_OPTIONS", "detect_leaks=0");
        run_with(command);
    }
}

#[test]
fn the_address_sanitizer_finds_nothing_either() {
    let dir = temp_dir();
    let program = dir.path().join("errors");
    if !sanitized("crates/trunkline/tests/c_api/errors.c", &program) {
        return;
    }
    let mut command = Command::new(&program);
    // The leak checker needs ptrace, which containers forbid; valgrind covers that.
    command.env("ASAN_OPTIONS", "detect_leaks=0");
    go_through_the_errors(command);
}

/// Compiles a program with AddressSanitizer and the static library. Returns false if the compiler
/// lacks AddressSanitizer.
fn sanitized(source: &str, program: &Path) -> bool {
    let source = root().join(source);
    let archive = library().join("libtrunkline.a");
    let libraries = ["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl"];
    let compiled = cc()
        .args(["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"])
        .arg(source)
        .arg("-o")
        .arg(program)
        .arg(archive)
        .args(libraries)
        .output()
        .expect("a C compiler");
    if !compiled.status.success() {
        let why = String::from_utf8_lossy(&compiled.stderr);
        assert!(why.contains("san"), "{why}");
        println!("skipped: the C compiler has no AddressSanitizer");
        assert!(std::env::var_os("CI").is_none(), "CI needs it");
    }
    compiled.status.success()
}

#[test]
fn threads_share_sockets() {
    let chain = Chain::of(2);
    let dir = temp_dir();
    let program = dir.path().join("threads");
    compile("crates/trunkline/tests/c_api/threads.c", &program);
    let run_with = |mut command: Command, rounds: &str| {
        let nodes = [&chain.nodes[0].socket, &chain.nodes[1].socket];
        let ended = run(command.args(nodes).arg(rounds));
        succeeded(&ended);
        println!("{}", ended.stdout.trim_end());
    };
    run_with(linked(&program), "500");
    if installed("valgrind") {
        run_with(valgrind(&program), "20");
    }
}

#[test]
fn a_node_on_another_host_is_as_good() {
    let dir = temp_dir();
    let program = dir.path().join("remote");
    compile("crates/trunkline/tests/c_api/remote.c", &program);
    let run_with = |mut command: Command| {
        let chain = Chain::sealed(2);
        command.args([0, 1].map(|i: usize| chain.nodes[i].attachment()));
        let (node, file) = (&chain.nodes[0], chain.dir.path().join("exposed.key"));
        std::fs::copy(key_file(chain.dir.path(), CLIENT), &file).expect("copied");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).expect("permitted");
        let at = node.attachment();
        let (address, other) = (node.remote, identity(77).public());
        command.args([
            format!("tcp://{address}"),
            node.attachment_at(address, STRANGER),
            at.replace(&identity(1).public().to_string(), &other.to_string()),
            at.replace("100.key", "exposed.key"),
            at.replace("100.key", "none.key"),
            at.replace("?node=", "?nod="),
            node.attachment_at(address, LIMITED),
        ]);
        go_through(chain, command);
    };
    run_with(linked(&program));
    if installed("valgrind") {
        run_with(valgrind(&program));
    }
}

#[test]
fn the_examples_authenticate_to_a_node_on_another_host() {
    let chain = Chain::sealed(2);
    let dir = temp_dir();
    let echo = dir.path().join("echo");
    compile("examples/c/echo.c", &echo);
    let mut echo = Process::start(linked(echo).arg(chain.nodes[1].attachment()).arg("4000"));
    wait_for("echo", || (echo.stdout() == "echo at 2:4000\n").then_some(()));
    if installed("python3") {
        let ping = |attachment: &str| {
            let mut python = linked("python3");
            python.env("PYTHONDONTWRITEBYTECODE", "1").arg(root().join("examples/python/ping.py"));
            run(python.arg(attachment).args(["2", "4000", "20"]))
        };
        let ended = ping(&chain.nodes[0].attachment());
        succeeded(&ended);
        assert!(ended.stdout.contains("20 of 20 came back\nmedian "), "{}", ended.stdout);
        let refused = ping(&format!("tcp://{}", chain.nodes[0].remote));
        assert_eq!(refused.code, Some(1));
        assert!(refused.stderr.contains("the attachment is not understood"), "{}", refused.stderr);
    }
    echo.crash();
    assert_eq!(echo.rest().1, "");
}

#[test]
fn the_examples_in_c_and_python_talk_over_two_nodes() {
    let chain = Chain::of(2);
    let dir = temp_dir();
    let [echo, talk] = ["echo", "talk"].map(|name| {
        let program = dir.path().join(name);
        compile(&format!("examples/c/{name}.c"), &program);
        program
    });
    let mut echo = Process::start(linked(echo).arg(&chain.nodes[1].socket).arg("4000"));
    wait_for("echo", || (echo.stdout() == "echo at 2:4000\n").then_some(()));

    let mut talk = Process::start(linked(talk).arg(&chain.nodes[0].socket).args(["2", "4000"]));
    for line in ["hello", "", "and goodbye"] {
        talk.tell(line);
    }
    let answers = "2:4000: hello\n2:4000: \n2:4000: and goodbye\n";
    wait_for("the answers", || (talk.stdout() == answers).then_some(()));
    talk.close_stdin();
    assert_eq!(talk.wait().code(), Some(0));
    assert_eq!(talk.rest(), (answers.to_owned(), String::new()));

    if installed("python3") {
        let script = root().join("examples/python/ping.py");
        let mut python = linked("python3");
        python.env("PYTHONDONTWRITEBYTECODE", "1").arg(script);
        let ended = run(python.arg(&chain.nodes[0].socket).args(["2", "4000", "20"]));
        succeeded(&ended);
        assert!(ended.stdout.starts_with("ping from 1:"), "{}", ended.stdout);
        assert!(ended.stdout.contains("20 of 20 came back\nmedian "), "{}", ended.stdout);
        let nobody = run(linked("python3")
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .arg(root().join("examples/python/ping.py"))
            .args(["/nowhere", "2", "4000"]));
        assert_eq!(nobody.code, Some(1));
        assert!(nobody.stderr.contains("no node runs at the attachment"), "{}", nobody.stderr);
    }
    echo.crash();
    assert_eq!(echo.rest().1, "");
}

/// Sends twenty times what its user may, and prints the errors by name.
const GREEDY: &str = "
import errno, sys, time
sys.path.insert(0, sys.argv[1])
from trunkline import DONTWAIT, Socket
told = {}
socket = Socket(sys.argv[2])
socket.bind(0)
def note(call):
    try:
        call()
    except OSError as error:
        name = call.__name__ + ' ' + errno.errorcode[error.errno]
        told[name] = told.get(name, 0) + 1
        return error.errno
def send(): socket.sendto(bytes(160), (2, 900))
def receive(): socket.recvfrom(flags=DONTWAIT)
for _ in range(200):
    note(send)
    time.sleep(0.002)
for _ in range(100):
    note(send)
    time.sleep(0.005)
    if note(receive) == errno.EDQUOT:
        break
told.pop('receive EAGAIN', None)
print(sorted(told), told['send EAGAIN'] > 20)
";

#[test]
fn an_application_over_the_rate_of_its_user_is_told() {
    if !installed("python3") {
        return;
    }
    let sections = "[access]\nrate = \"100 kbit/s\"\n";
    let chain = Chain::start(&Setup { sections, ..Setup::default() });
    let _listener = chain.nodes[1].bind(900);
    let ended = run(linked("python3")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .args(["-c", GREEDY])
        .arg(root().join("examples/python"))
        .arg(&chain.nodes[0].socket));
    succeeded(&ended);
    let expected = "['receive EDQUOT', 'send EAGAIN'] True\n";
    assert_eq!(ended.stdout, expected);
}

/// The stream examples, in C and, if installed, in Python.
fn stream_examples(dir: &Path) -> Vec<Box<dyn Fn() -> Command>> {
    let program = dir.join("stream");
    compile("examples/c/stream.c", &program);
    let mut examples: Vec<Box<dyn Fn() -> Command>> = vec![Box::new(move || linked(&program))];
    if installed("python3") {
        examples.push(Box::new(|| {
            let mut python = linked("python3");
            python.env("PYTHONDONTWRITEBYTECODE", "1");
            python.arg(root().join("examples/python/stream.py"));
            python
        }));
    }
    examples
}

#[test]
fn the_examples_of_streams_say_why_not() {
    let dir = temp_dir();
    for example in stream_examples(dir.path()) {
        for arguments in [&["connect", "2", "4000"][..], &["listen", "4000"]] {
            let ended = run(example().arg("/nowhere").args(arguments));
            assert_eq!(ended.code, Some(1));
            assert!(ended.stderr.contains("no node runs at the attachment"), "{}", ended.stderr);
        }
        assert_ne!(run(example().arg("/nowhere")).code, Some(0), "usage");
        for arguments in [&["connect", "site-b", "4000"][..], &["listen", "abc"]] {
            let said = run(example().arg("/nowhere").args(arguments)).stderr;
            assert!(said.contains("number") && !said.contains("Traceback"), "{said}");
        }
    }
}

/// Runs each example as a server, and each as its client, over two nodes.
#[test]
fn the_examples_of_streams_talk_over_two_nodes() {
    let chain = Chain::of(2);
    let dir = temp_dir();
    let input = dir.path().join("input");
    let text: String = (0..200_000).map(|n| format!("{n}\n")).collect();
    std::fs::write(&input, &text).expect("written");
    let examples = stream_examples(dir.path());
    for (n, server) in examples.iter().enumerate() {
        let port = (4000 + n).to_string();
        let mut server = server();
        let mut server = Process::start(server.arg(&chain.nodes[1].socket).args(["listen", &port]));
        let listening = format!("listening at 2:{port}\n");
        wait_for("the listener", || server.stdout().starts_with(&listening).then_some(()));
        for client in &examples {
            let mut client = client();
            client.stdin(std::fs::File::open(&input).expect("opened"));
            let to = ["connect", "2", &port];
            let ended = client.arg(&chain.nodes[0].socket).args(to).output().expect("runs");
            assert_eq!(String::from_utf8_lossy(&ended.stderr), "");
            assert!(ended.status.success() && ended.stdout == text.as_bytes());
        }
        server.crash();
        assert_eq!(server.rest().1, "");
    }
    for client in &examples {
        let mut client = client();
        let ended = run(client.arg(&chain.nodes[0].socket).args(["connect", "2", "4099"]));
        assert_eq!(ended.code, Some(1));
        assert!(ended.stderr.contains("listens there for streams"), "{}", ended.stderr);
    }
}

/// Installs as `make install` does, with `dest` in place of the root.
fn install(dir: &Path, dest: &Path) -> PathBuf {
    let built = dir.join("built");
    std::fs::create_dir(&built).expect("a folder");
    symlink(library(), built.join("c-library")).expect("a link");
    symlink(env!("CARGO_BIN_EXE_trunkline"), built.join("trunkline")).expect("a link");
    // The binary of another package may not be built; it is only copied.
    std::fs::write(built.join("trunkline-lab"), "#!").expect("written");
    let paths = ["/opt/t", "/opt/t/lib64", "/opt/t/man"];
    output(Command::new(root().join("scripts/install.sh")).arg(&built).args(paths).arg(dest));
    dest.join("opt/t")
}

#[test]
fn what_is_installed_is_enough_to_build_with() {
    if !installed("pkg-config") {
        return;
    }
    let dir = temp_dir();
    let dest = dir.path().join("dest");
    let opt = install(dir.path(), &dest);
    for file in [
        "bin/trunkline",
        "bin/trunkline-lab",
        "share/trunkline/speech/en-allison.wav",
        "share/trunkline/speech/LICENSE-LibriSpeech.txt",
        "share/trunkline/speech/librispeech/87-121553-0000.wav",
        "man/man1/trunkline.1",
        "man/man1/trunkline-node.1",
    ] {
        assert!(opt.join(file).metadata().is_ok_and(|m| m.len() > 0), "{file}");
    }
    let flags = output(
        Command::new("pkg-config")
            .args(["--cflags", "--libs", "trunkline"])
            .env("PKG_CONFIG_PATH", opt.join("lib64/pkgconfig"))
            .env("PKG_CONFIG_SYSROOT_DIR", &dest),
    );
    let program = dir.path().join("talk");
    let source = root().join("examples/c/talk.c");
    output(Command::new("cc").arg(source).arg("-o").arg(&program).args(flags.split_whitespace()));
    let usage = run(Command::new(&program).env("LD_LIBRARY_PATH", opt.join("lib64")));
    assert_eq!(usage.code, Some(2), "{}", usage.stderr);
}

/// Follows docs/c-api.md literally, except for the ports, which may be taken.
#[test]
fn the_examples_do_what_the_page_shows() {
    if !installed("pkg-config") || !installed("python3") {
        return;
    }
    let page = std::fs::read_to_string(root().join("docs/c-api.md")).expect("the page");
    let mut blocks = page.split("```").skip(1).step_by(2);
    let script = blocks.find(|block| block.starts_with("sh\nmkdir -p try")).expect("the example");
    let shown =
        blocks.next().and_then(|block| block.strip_prefix("text\n")).expect("what it shows");
    let dir = temp_dir();
    let dest = dir.path().join("dest");
    let opt = install(dir.path(), &dest);
    symlink(root().join("examples"), dir.path().join("examples")).expect("a link");
    let mut script = script.strip_prefix("sh\n").expect("a script").to_owned();
    for port in ["7001", "7002"] {
        script = script.replace(port, &free_port(Ipv4Addr::LOCALHOST.into()).port().to_string());
    }
    let path = std::env::var("PATH").expect("a search path");
    let mut shell = Command::new("bash");
    shell.args(["-e", "-c", &script]).current_dir(dir.path());
    shell.env("PATH", format!("{}:{path}", opt.join("bin").display()));
    shell.env("LD_LIBRARY_PATH", opt.join("lib64")).env("PYTHONDONTWRITEBYTECODE", "1");
    shell.env("PKG_CONFIG_PATH", opt.join("lib64/pkgconfig")).env("PKG_CONFIG_SYSROOT_DIR", &dest);
    let ended = run(&mut shell);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    for line in shown.lines() {
        assert!(ended.stdout.lines().any(|said| said == line), "{line}: {}", ended.stdout);
    }
}

/// Names of the functions that the header declares.
fn declared() -> BTreeSet<String> {
    let header = std::fs::read_to_string(root().join("include/trunkline.h")).expect("the header");
    let declarations = header.lines().filter(|l| l.ends_with(");") && !l.starts_with([' ', '/']));
    declarations
        .filter_map(|line| line.split('(').next()?.split([' ', '*']).next_back())
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_shared_library_exports_what_the_header_declares_and_no_more() {
    let library = library().join("libtrunkline.so");
    let symbols = output(
        Command::new("nm").args(["-D", "--defined-only", "--with-symbol-versions"]).arg(&library),
    );
    let exported: BTreeSet<_> = symbols
        .lines()
        .filter_map(|line| line.split(' ').nth(2))
        .filter(|name| *name != "TRUNKLINE_0")
        .map(str::to_owned)
        .collect();
    let versioned: BTreeSet<_> =
        declared().into_iter().map(|name| format!("{name}@@TRUNKLINE_0")).collect();
    // Show only a few of each: thousands may be extra.
    let extra: Vec<_> = exported.difference(&versioned).take(5).collect();
    let missing: Vec<_> = versioned.difference(&exported).take(5).collect();
    assert!(extra.is_empty() && missing.is_empty(), "too many: {extra:?}; missing: {missing:?}");
    assert!(exported.len() >= 10);
    let dynamic = output(Command::new("readelf").arg("-d").arg(&library));
    assert!(dynamic.contains("Library soname: [libtrunkline.so.0]"), "{dynamic}");
}

#[test]
fn the_header_is_good_for_old_c_and_cpp() {
    let dir = temp_dir();
    for (compiler, standard, file) in
        [("cc", "-std=c89", "use.c"), ("c++", "-std=c++98", "use.cpp")]
    {
        if !installed(compiler) {
            continue;
        }
        let source = dir.path().join(file);
        std::fs::write(
            &source,
            "#include <trunkline.h>\nint fd(void);\nint fd(void) { return tl_socket(\"x\"); }\n",
        )
        .expect("written");
        let mut command = Command::new(compiler);
        command.args([standard, "-pedantic", "-Wall", "-Wextra", "-Werror", "-c", "-I"]);
        output(
            command.arg(root().join("include")).arg(&source).arg("-o").arg(dir.path().join("o")),
        );
    }
}
