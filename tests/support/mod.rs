//! Private PostgreSQL clusters for tests and benches, and the oracle they all share.
//!
//! A [`Cluster`] lives in its own temporary folder with a unix socket and no TCP, runs as an unprivileged user, and
//! is gone when it is dropped, when the test panics, and when the test process itself is killed. Most tests need no
//! cluster of their own: [`fresh_db`] gives them a database in one that all tests of the process share.
//!
//! Which PostgreSQL: `PGTRICKLE_PG_CONFIG` names a `pg_config`; the default is Debian's PostgreSQL 15. The extension
//! must be installed there.

// Each test binary includes this file and uses its own part of it.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use postgres::error::DbError;
use postgres::{Client, Config, GenericClient, NoTls};
use tempfile::TempDir;

const START_TIMEOUT: Duration = Duration::from_secs(60);
const STOP_TIMEOUT: Duration = Duration::from_secs(60);
/// `sun_path` holds 107 characters, and the socket's own name takes 16 of them.
const LONGEST_FOLDER: usize = 80;

// ---------------------------------------------------------------------------------------------------------------
// Which server
// ---------------------------------------------------------------------------------------------------------------

/// The `pg_config` of the server under test.
pub fn pg_config() -> PathBuf {
    std::env::var_os("PGTRICKLE_PG_CONFIG")
        .map_or_else(|| PathBuf::from("/usr/lib/postgresql/15/bin/pg_config"), PathBuf::from)
}

fn ask_pg_config(pg_config: &Path, what: &str) -> String {
    let output = Command::new(pg_config).arg(what).output().unwrap_or_else(|e| {
        panic!("there is no PostgreSQL to test with: {} does not run: {e}", pg_config.display())
    });
    String::from_utf8_lossy(&output.stdout).trim().to_string()
}

/// The unprivileged account that servers run as: `postgres` when we are root, else ourselves.
#[derive(Clone, Copy)]
struct Account {
    uid: u32,
    gid: u32,
}

fn account() -> Option<Account> {
    static ACCOUNT: OnceLock<Option<Account>> = OnceLock::new();
    *ACCOUNT.get_or_init(|| {
        // SAFETY: geteuid has no preconditions.
        if unsafe { libc::geteuid() } != 0 {
            return None;
        }
        // SAFETY: the name is a C string; the static buffer that comes back is read at once, and only here.
        let entry = unsafe { libc::getpwnam(c"postgres".as_ptr()) };
        assert!(!entry.is_null(), "we are root, and there is no user \"postgres\" to run the server as");
        // SAFETY: checked for null just above.
        let entry = unsafe { &*entry };
        Some(Account { uid: entry.pw_uid, gid: entry.pw_gid })
    })
}

fn command_as_server_user(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    if let Some(account) = account() {
        command.uid(account.uid).gid(account.gid);
    }
    command
}

fn give_to_server_user(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("chmod of a folder of ours");
    if let Some(account) = account() {
        chown(path, Some(account.uid), Some(account.gid)).expect("chown of a folder of ours");
    }
}

const FOLDER_PREFIX: &str = "pgtrickle-";
const OWNER_FILE: &str = "owner";

fn new_folder() -> TempDir {
    static SWEEP: std::sync::Once = std::sync::Once::new();
    let parent = std::env::temp_dir();
    let parent = if parent.as_os_str().len() > LONGEST_FOLDER { PathBuf::from("/tmp") } else { parent };
    SWEEP.call_once(|| sweep(&parent));
    let folder =
        tempfile::Builder::new().prefix(FOLDER_PREFIX).tempdir_in(parent).expect("a temporary folder");
    if let Some(owner) = process_identity("self") {
        fs::write(folder.path().join(OWNER_FILE), owner).expect("a file in a folder of ours");
    }
    give_to_server_user(folder.path());
    folder
}

/// Removes what killed test processes left: the kernel stopped their servers, but nobody removed their folders.
fn sweep(parent: &Path) {
    let Some(me) = process_identity("self") else { return };
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let Ok(owner) = fs::read_to_string(entry.path().join(OWNER_FILE)) else { continue };
        let mut words = owner.split(' ');
        let (Some(namespace), Some(pid)) = (words.next(), words.next()) else { continue };
        // Another container that shares the folder has process numbers of its own.
        let comparable = me.starts_with(&format!("{namespace} "));
        let named = entry.file_name().to_string_lossy().starts_with(FOLDER_PREFIX);
        if comparable && named && process_identity(pid).as_ref() != Some(&owner) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// A process in one line that no later process of the same number shares: namespace, number, start time.
fn process_identity(process: &str) -> Option<String> {
    let folder = Path::new("/proc").join(process);
    let namespace = fs::read_link(folder.join("ns/pid")).ok()?;
    let stat = fs::read_to_string(folder.join("stat")).ok()?;
    let pid = stat.split(' ').next()?;
    // The name in brackets may hold anything, so fields are counted from its end; the start time is the 22nd of all.
    let started = stat.rsplit(')').next()?.split(' ').nth(20)?;
    Some(format!("{} {pid} {started}", namespace.display()))
}

// ---------------------------------------------------------------------------------------------------------------
// Clusters
// ---------------------------------------------------------------------------------------------------------------

/// What is special about a cluster; the default is a plain one without preload and without fsync.
#[derive(Clone, Default)]
pub struct Options {
    /// `shared_preload_libraries = 'pgtrickle'`: workers and hooks run.
    pub preload: bool,
    /// Real durability: needed where the machine, not only the server, is thought to crash.
    pub fsync: bool,
    /// More lines for postgresql.conf.
    pub conf: Vec<String>,
    /// `RUST_BACKTRACE=1` in the postmaster's environment, as a build environment may set it.
    pub backtrace: bool,
    /// Another server than the one of [`pg_config`].
    pub pg_config: Option<PathBuf>,
    /// A folder that stays, and a server that goes on running after this process ends.
    pub lasting_home: Option<PathBuf>,
}

impl Options {
    pub fn preloaded() -> Self {
        Options { preload: true, ..Options::default() }
    }

    pub fn with(mut self, conf: &str) -> Self {
        self.conf.push(conf.to_string());
        self
    }
}

/// How the postmaster is told to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    Smart,
    Fast,
    Immediate,
}

pub struct Cluster {
    /// Holds the data folder, the socket and the log; None for a lasting cluster.
    temporary: Option<TempDir>,
    home: PathBuf,
    bindir: PathBuf,
    major: u32,
    backtrace: bool,
    postmaster: Mutex<Option<Child>>,
}

impl Cluster {
    /// Makes a cluster and waits until it answers.
    pub fn start(options: &Options) -> Cluster {
        let cluster = Cluster::prepare(options);
        cluster.start_again();
        cluster
    }

    /// Makes a cluster that is not started yet: for tests that change its files first.
    pub fn prepare(options: &Options) -> Cluster {
        let pg_config = options.pg_config.clone().unwrap_or_else(pg_config);
        let bindir = PathBuf::from(ask_pg_config(&pg_config, "--bindir"));
        let version = ask_pg_config(&pg_config, "--version");
        let major = version
            .trim_start_matches("PostgreSQL ")
            .split(|c: char| !c.is_ascii_digit())
            .next()
            .and_then(|digits| digits.parse().ok())
            .unwrap_or_else(|| panic!("{version:?} is not a version of PostgreSQL"));

        let (temporary, home) = match &options.lasting_home {
            Some(home) => {
                fs::create_dir_all(home).expect("the folder of a lasting cluster");
                give_to_server_user(home);
                (None, home.clone())
            }
            None => {
                let folder = new_folder();
                let home = folder.path().to_path_buf();
                (Some(folder), home)
            }
        };
        let backtrace = options.backtrace;
        let cluster = Cluster { temporary, home, bindir, major, backtrace, postmaster: Mutex::new(None) };
        let template = template_data(&cluster.bindir);
        let copied = command_as_server_user("cp")
            .arg("-a")
            .arg("--reflink=auto")
            .arg(&template)
            .arg(cluster.data_dir())
            .status()
            .expect("cp");
        assert!(copied.success(), "the template of the data folder could not be copied");
        cluster.append_conf(&cluster.base_conf(options));
        cluster
    }

    fn base_conf(&self, options: &Options) -> String {
        let mut lines = vec![
            "listen_addresses = ''".to_string(),
            "port = 5432".to_string(),
            format!("unix_socket_directories = '{}'", self.home.display()),
            // Logins need no password, so nobody but us (and root) may reach the socket.
            "unix_socket_permissions = 0700".to_string(),
            format!("fsync = {}", if options.fsync { "on" } else { "off" }),
            "log_line_prefix = '%m [%p] %d '".to_string(),
            "timezone = 'UTC'".to_string(),
        ];
        if options.preload {
            lines.push("shared_preload_libraries = 'pgtrickle'".to_string());
        }
        lines.extend(options.conf.iter().cloned());
        lines.join("\n") + "\n"
    }

    /// Appends to postgresql.conf; it counts from the next start or reload.
    pub fn append_conf(&self, lines: &str) {
        use std::io::Write;
        let path = self.data_dir().join("postgresql.conf");
        let mut file = fs::OpenOptions::new().append(true).open(path).expect("postgresql.conf");
        writeln!(file, "{lines}").expect("postgresql.conf");
    }

    /// Starts the stopped server and waits until it answers.
    pub fn start_again(&self) {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            match self.try_start() {
                Ok(()) => return,
                // After a killed postmaster its last backends may hold the shared memory for a moment.
                Err(_) if Instant::now() < deadline => thread::sleep(Duration::from_millis(50)),
                Err(reason) => panic!("the server does not start: {reason}\n{}", self.log_tail(40)),
            }
        }
    }

    fn try_start(&self) -> Result<(), String> {
        let mut postmaster = self.lock_postmaster();
        assert!(postmaster.is_none(), "the server runs already");
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log_path())
            .map_err(|e| e.to_string())?;
        let mut command = command_as_server_user(self.bindir.join("postgres"));
        command
            .arg("-D")
            .arg(self.data_dir())
            .current_dir(&self.home)
            // Only tests of errors want it: a backtrace in the DETAIL of an error would be a fault of ours.
            .env_remove("RUST_BACKTRACE")
            .env_remove("RUST_LIB_BACKTRACE")
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(|e| e.to_string())?)
            .stderr(log);
        if self.backtrace {
            command.env("RUST_BACKTRACE", "1");
        }
        let lasting = self.temporary.is_none();
        // SAFETY: prctl and setsid are async-signal-safe, and nothing else happens between fork and exec.
        unsafe {
            command.pre_exec(move || {
                if lasting {
                    libc::setsid();
                } else {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGQUIT);
                }
                Ok(())
            });
        }
        let mut child = spawn_from_lasting_thread(command).map_err(|e| e.to_string())?;
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            if let Some(status) = child.try_wait().map_err(|e| e.to_string())? {
                return Err(format!("the postmaster ended with {status}"));
            }
            match self.config("postgres", "postgres").connect(NoTls) {
                Ok(_) => break,
                Err(_) if Instant::now() < deadline => thread::sleep(Duration::from_millis(10)),
                Err(e) => {
                    signal(child.id(), libc::SIGQUIT);
                    let _ = child.wait();
                    return Err(format!("no answer: {e}"));
                }
            }
        }
        *postmaster = Some(child);
        Ok(())
    }

    /// Stops the server and says how long that took; panics when it does not stop.
    pub fn stop(&self, how: Stop) -> Duration {
        let begin = Instant::now();
        let Some(mut child) = self.lock_postmaster().take() else {
            return Duration::ZERO;
        };
        signal(
            child.id(),
            match how {
                Stop::Smart => libc::SIGTERM,
                Stop::Fast => libc::SIGINT,
                Stop::Immediate => libc::SIGQUIT,
            },
        );
        while child.try_wait().expect("the postmaster's end").is_none() {
            if begin.elapsed() > STOP_TIMEOUT {
                signal(child.id(), libc::SIGKILL);
                let _ = child.wait();
                self.kill_leftovers();
                panic!("the server does not stop ({how:?})\n{}", self.log_tail(40));
            }
            thread::sleep(Duration::from_millis(5));
        }
        begin.elapsed()
    }

    /// Kills the postmaster as a machine would: no shutdown, and its backends find out by themselves.
    pub fn kill9_postmaster(&self) {
        let mut child = self.lock_postmaster().take().expect("a running postmaster");
        signal(child.id(), libc::SIGKILL);
        child.wait().expect("the postmaster's end");
    }

    /// The postmaster's process id.
    pub fn pid(&self) -> u32 {
        self.lock_postmaster().as_ref().map(Child::id).expect("a running postmaster")
    }

    fn lock_postmaster(&self) -> std::sync::MutexGuard<'_, Option<Child>> {
        // A test that panicked while holding it leaves a usable value behind.
        self.postmaster.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Backends that outlive a killed postmaster: every process whose working folder is our data folder.
    fn kill_leftovers(&self) {
        let Ok(data) = self.data_dir().canonicalize() else { return };
        let Ok(processes) = fs::read_dir("/proc") else { return };
        for process in processes.flatten() {
            let Some(pid) = process.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            if fs::read_link(process.path().join("cwd")).is_ok_and(|cwd| cwd == data) {
                signal(pid, libc::SIGKILL);
            }
        }
    }

    pub fn home(&self) -> &Path {
        &self.home
    }

    pub fn data_dir(&self) -> PathBuf {
        self.home.join("data")
    }

    pub fn bindir(&self) -> &Path {
        &self.bindir
    }

    /// 15 for PostgreSQL 15.
    pub fn major(&self) -> u32 {
        self.major
    }

    fn log_path(&self) -> PathBuf {
        self.home.join("server.log")
    }

    /// The server's log so far.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.log_path()).unwrap_or_default()).into_owned()
    }

    fn log_tail(&self, lines: usize) -> String {
        let log = self.log();
        let all: Vec<&str> = log.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    /// How to connect, for those who want to set more.
    pub fn config(&self, db: &str, user: &str) -> Config {
        let mut config = Config::new();
        config.host_path(&self.home).port(5432).dbname(db).user(user);
        config
    }

    pub fn connect(&self, db: &str) -> Client {
        self.connect_as(db, "postgres")
    }

    pub fn connect_as(&self, db: &str, user: &str) -> Client {
        self.config(db, user)
            .connect(NoTls)
            .unwrap_or_else(|e| panic!("no connection to {db} as {user}: {}", describe(&e)))
    }

    /// A connection that also keeps the notices and warnings it was sent.
    pub fn connect_noting(&self, db: &str) -> (Client, Notices) {
        self.connect_noting_as(db, "postgres")
    }

    pub fn connect_noting_as(&self, db: &str, user: &str) -> (Client, Notices) {
        let notices = Notices::default();
        let sink = notices.clone();
        let client = self
            .config(db, user)
            .notice_callback(move |notice| sink.push(notice))
            .connect(NoTls)
            .unwrap_or_else(|e| panic!("no connection to {db} as {user}: {}", describe(&e)));
        (client, notices)
    }

    pub fn create_db(&self, name: &str) {
        // Nobody is ever connected to template0, so this never waits for another test.
        let mut client = self.connect("postgres");
        client
            .batch_execute(&format!("CREATE DATABASE {} TEMPLATE template0", quote_ident(name)))
            .unwrap_or_else(|e| panic!("CREATE DATABASE {name}: {}", describe(&e)));
    }

    /// One of the server's programs (pg_dump, pg_basebackup, ...), set up to reach this cluster.
    pub fn command(&self, program: &str) -> Command {
        let mut command = command_as_server_user(self.bindir.join(program));
        command
            .current_dir(&self.home)
            .env("PGHOST", &self.home)
            .env("PGPORT", "5432")
            .env("PGUSER", "postgres")
            .env("PGDATABASE", "postgres")
            .env_remove("RUST_BACKTRACE")
            .env_remove("RUST_LIB_BACKTRACE")
            .stdin(Stdio::null());
        command
    }

    /// Runs psql without the user's own settings.
    pub fn psql(&self, args: &[&str]) -> Output {
        self.command("psql").arg("-X").args(args).output().expect("psql")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.temporary.is_none() {
            return;
        }
        if let Some(mut child) = self.lock_postmaster().take() {
            signal(child.id(), libc::SIGQUIT);
            let begin = Instant::now();
            while matches!(child.try_wait(), Ok(None)) {
                if begin.elapsed() > Duration::from_secs(10) {
                    signal(child.id(), libc::SIGKILL);
                    let _ = child.wait();
                    break;
                }
                thread::sleep(Duration::from_millis(5));
            }
        }
        self.kill_leftovers();
    }
}

fn signal(pid: u32, signal: i32) {
    let pid = libc::pid_t::try_from(pid).expect("a process id");
    // SAFETY: kill has no memory preconditions; the process is one that we started.
    unsafe { libc::kill(pid, signal) };
}

/// A process started by a thread gets its parent-death signal when that *thread* ends, and a test is a thread. So
/// one thread that never ends starts all servers.
fn spawn_from_lasting_thread(command: Command) -> io::Result<Child> {
    type Order = (Command, Sender<io::Result<Child>>);
    static STARTER: OnceLock<Sender<Order>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (sender, orders) = channel::<Order>();
        thread::Builder::new()
            .name("server starter".to_string())
            .spawn(move || {
                for (mut command, reply) in orders {
                    let _ = reply.send(command.spawn());
                }
            })
            .expect("a thread");
        sender
    });
    let (reply, answer) = channel();
    starter.send((command, reply)).expect("the starter thread lives as long as the process");
    answer.recv().expect("the starter thread answers")
}

/// initdb takes most of the time of a new cluster, so it runs once per process and server; the rest are copies.
fn template_data(bindir: &Path) -> PathBuf {
    static TEMPLATES: Mutex<BTreeMap<PathBuf, PathBuf>> = Mutex::new(BTreeMap::new());
    let mut templates = TEMPLATES.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(data) = templates.get(bindir) {
        return data.clone();
    }
    let folder = new_folder().keep();
    remove_at_exit(&folder);
    let data = folder.join("data");
    let output = command_as_server_user(bindir.join("initdb"))
        .args(["--no-sync", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C.UTF-8", "-D"])
        .arg(&data)
        .current_dir(&folder)
        .output()
        .expect("initdb");
    assert!(output.status.success(), "initdb failed: {}", String::from_utf8_lossy(&output.stderr));
    templates.insert(bindir.to_path_buf(), data.clone());
    data
}

// ---------------------------------------------------------------------------------------------------------------
// What is shared by the whole process, and its end
// ---------------------------------------------------------------------------------------------------------------

static SHARED: OnceLock<Cluster> = OnceLock::new();
static LEFT_AT_EXIT: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// The cluster, without preload, in which most tests have a database of their own.
pub fn shared() -> &'static Cluster {
    SHARED.get_or_init(|| {
        register_exit();
        Cluster::start(&Options::default().with("max_connections = 200").with("jit = off"))
    })
}

fn remove_at_exit(folder: &Path) {
    register_exit();
    LEFT_AT_EXIT.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(folder.to_path_buf());
}

/// Statics are never dropped, so the process's own end has to stop the shared cluster.
fn register_exit() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    extern "C" fn at_exit() {
        if let Some(cluster) = SHARED.get() {
            if let Some(mut child) = cluster.lock_postmaster().take() {
                signal(child.id(), libc::SIGQUIT);
                let _ = child.wait();
            }
            cluster.kill_leftovers();
            let _ = fs::remove_dir_all(&cluster.home);
        }
        if let Ok(folders) = LEFT_AT_EXIT.lock() {
            for folder in folders.iter() {
                let _ = fs::remove_dir_all(folder);
            }
        }
    }
    ONCE.call_once(|| {
        // SAFETY: the handler is a plain function that uses only statics.
        unsafe { libc::atexit(at_exit) };
    });
}

/// A database of the shared cluster that belongs to one test, with the extension in it.
pub struct TestDb {
    pub cluster: &'static Cluster,
    pub name: String,
}

impl TestDb {
    pub fn connect(&self) -> Client {
        self.cluster.connect(&self.name)
    }

    pub fn connect_as(&self, user: &str) -> Client {
        self.cluster.connect_as(&self.name, user)
    }

    pub fn connect_noting(&self) -> (Client, Notices) {
        self.cluster.connect_noting(&self.name)
    }

    /// A role for this test alone: roles are shared by all databases of the cluster.
    pub fn create_role(&self, stem: &str) -> String {
        let name = format!("{}_{stem}", self.name);
        let mut client = self.connect();
        client
            .batch_execute(&format!("CREATE ROLE {} LOGIN", quote_ident(&name)))
            .unwrap_or_else(|e| panic!("CREATE ROLE {name}: {}", describe(&e)));
        name
    }
}

impl Drop for TestDb {
    fn drop(&mut self) {
        // Best effort: the cluster goes away at the end in any case.
        if let Ok(mut client) = self.cluster.config("postgres", "postgres").connect(NoTls) {
            let _ = client
                .batch_execute(&format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", quote_ident(&self.name)));
        }
    }
}

/// A new, empty database without the extension.
pub fn bare_db() -> TestDb {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let name = format!("t{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let cluster = shared();
    cluster.create_db(&name);
    TestDb { cluster, name }
}

/// A new database with `CREATE EXTENSION pgtrickle` done.
pub fn fresh_db() -> TestDb {
    let db = bare_db();
    db.connect()
        .batch_execute("CREATE EXTENSION pgtrickle")
        .unwrap_or_else(|e| panic!("CREATE EXTENSION pgtrickle: {}", describe(&e)));
    db
}

// ---------------------------------------------------------------------------------------------------------------
// The oracle (I1)
// ---------------------------------------------------------------------------------------------------------------

/// What one refresh did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refresh {
    pub action: String,
    pub inserted: i64,
    pub updated: i64,
    pub deleted: i64,
}

/// Refreshes a stream table and checks I1: afterwards it equals its query.
///
/// Where other sessions write at the same time, call it in a REPEATABLE READ transaction, so that the check reads
/// what the refresh read.
pub fn refresh(client: &mut impl GenericClient, stream_table: &str) -> Refresh {
    try_refresh(client, stream_table, "auto")
        .unwrap_or_else(|e| panic!("refresh of {stream_table} failed: {}", describe(&e)))
}

/// As [`refresh`], in a given mode, and giving back the error where there is one.
pub fn try_refresh(
    client: &mut impl GenericClient,
    stream_table: &str,
    mode: &str,
) -> Result<Refresh, postgres::Error> {
    let row = client.query_one(
        "SELECT action, rows_inserted, rows_updated, rows_deleted \
         FROM pgtrickle.refresh_stream_table($1::text::regclass, $2::text)",
        &[&stream_table, &mode],
    )?;
    let done = Refresh { action: row.get(0), inserted: row.get(1), updated: row.get(2), deleted: row.get(3) };
    assert_up_to_date(client, stream_table);
    Ok(done)
}

/// I1 without a refresh of our own: a stream table that is active equals the query that the catalog has for it, and
/// has exactly its columns (I7).
pub fn assert_up_to_date(client: &mut impl GenericClient, stream_table: &str) {
    let row = client
        .query_one(
            "SELECT status, query FROM pgtrickle.stream_tables WHERE stream_table = $1::text::regclass",
            &[&stream_table],
        )
        .unwrap_or_else(|e| panic!("{stream_table} is not in pgtrickle.stream_tables: {}", describe(&e)));
    let status: &str = row.get(0);
    if status != "active" {
        return;
    }
    let query: String = row.get(1);
    let of_table = columns(client, &format!("TABLE {stream_table}"));
    let of_query = columns(client, query.trim().trim_end_matches(';'));
    assert_eq!(
        of_table, of_query,
        "I7: {stream_table} does not have exactly the columns of its query {query}"
    );
    assert_equal(client, stream_table, &query);
}

fn columns(client: &mut impl GenericClient, query: &str) -> Vec<(String, u32)> {
    let statement = client.prepare(query).unwrap_or_else(|e| panic!("{query}: {}", describe(&e)));
    statement.columns().iter().map(|column| (column.name().to_string(), column.type_().oid())).collect()
}

/// I1: the stream table and the query hold the same rows, each as often.
pub fn assert_equal(client: &mut impl GenericClient, stream_table: &str, query: &str) {
    if let Some(report) = difference(client, stream_table, query) {
        panic!("{report}");
    }
}

/// The rows by which a stream table and a query differ, up to 20 of either side, as text to be read; None if equal. Rows
/// are compared as they are printed: equal values can print differently.
pub fn difference(client: &mut impl GenericClient, stream_table: &str, query: &str) -> Option<String> {
    const SHOWN: usize = 20;
    let query = query.trim().trim_end_matches(';');
    // Each side is computed once, for both directions.
    let side = |label: &str, minuend: &str, subtrahend: &str| {
        format!(
            "(SELECT '{label}' AS side, row, count(*) OVER () AS n \
             FROM (SELECT \"whole row\"::text FROM {minuend} \"whole row\" EXCEPT ALL \
                   SELECT \"whole row\"::text FROM {subtrahend} \"whole row\") r (row) LIMIT {SHOWN})"
        )
    };
    let comparison = format!(
        "WITH of_query AS MATERIALIZED ({query}), of_table AS MATERIALIZED (TABLE {stream_table}) \
         {} UNION ALL {}",
        side("missing", "of_query", "of_table"),
        side("surplus", "of_table", "of_query")
    );
    let rows = client.query(&comparison, &[]).unwrap_or_else(|e| {
        panic!("{stream_table} can't be compared with its query: {}\n{comparison}", describe(&e))
    });
    if rows.is_empty() {
        return None;
    }
    let mut report = format!("I1: {stream_table} differs from its query\n  {query}\n");
    for (label, meaning) in [
        ("missing", "in the query, missing in the stream table"),
        ("surplus", "in the stream table, not in the query"),
    ] {
        let of_side: Vec<_> = rows.iter().filter(|row| row.get::<_, &str>(0) == label).collect();
        let total: i64 = of_side.first().map_or(0, |row| row.get(2));
        report.push_str(&format!("  {total} rows {meaning}\n"));
        for row in of_side {
            report.push_str(&format!("    {}\n", row.get::<_, &str>(1)));
        }
    }
    Some(report)
}

// ---------------------------------------------------------------------------------------------------------------
// Errors and notices
// ---------------------------------------------------------------------------------------------------------------

/// An error as the user sees it; absent parts are empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub sqlstate: String,
    pub message: String,
    pub detail: String,
    pub hint: String,
}

impl From<&DbError> for Failure {
    fn from(e: &DbError) -> Self {
        Failure {
            sqlstate: e.code().code().to_string(),
            message: e.message().to_string(),
            detail: e.detail().unwrap_or_default().to_string(),
            hint: e.hint().unwrap_or_default().to_string(),
        }
    }
}

/// The server's error; panics for one that is not the server's, such as a lost connection.
pub fn db_error(error: &postgres::Error) -> Failure {
    error.as_db_error().map(Failure::from).unwrap_or_else(|| panic!("not an error of the server: {error}"))
}

/// Runs a statement that has to fail.
pub fn expect_error(client: &mut impl GenericClient, sql: &str) -> Failure {
    match client.batch_execute(sql) {
        Ok(()) => panic!("this should have failed: {sql}"),
        Err(error) => db_error(&error),
    }
}

/// An error in one line: the `postgres` crate's own text is only "db error".
pub fn describe(error: &postgres::Error) -> String {
    match error.as_db_error() {
        None => error.to_string(),
        Some(e) => {
            let mut text = format!("{} {}", e.code().code(), e.message());
            for (label, part) in [("DETAIL", e.detail()), ("HINT", e.hint()), ("CONTEXT", e.where_())] {
                if let Some(part) = part {
                    text.push_str(&format!(" | {label}: {part}"));
                }
            }
            text
        }
    }
}

/// The notices and warnings that a connection was sent.
#[derive(Clone, Default)]
pub struct Notices(Arc<Mutex<Vec<(String, Failure)>>>);

impl Notices {
    fn push(&self, notice: DbError) {
        let entry = (notice.severity().to_string(), Failure::from(&notice));
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(entry);
    }

    /// Takes what came since the last call, as pairs of severity and text.
    pub fn take(&self) -> Vec<(String, Failure)> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}

// ---------------------------------------------------------------------------------------------------------------
// Small things
// ---------------------------------------------------------------------------------------------------------------

/// Quotes always: right for every name.
pub fn quote_ident(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Waits until the condition holds; panics with `what` when it never does.
pub fn wait_until(what: &str, timeout: Duration, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + timeout;
    while !condition() {
        assert!(Instant::now() < deadline, "waited {timeout:?} in vain: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}
