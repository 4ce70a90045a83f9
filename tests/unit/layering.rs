//! The rules of `src/README.md`, read from it and applied to the text of `src/`: who may use whom, what is pure, where
//! `unsafe` is, and that each use of it says why it is sound.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// One source file: path below `src/`, its text, and its text with comments and literals blanked.
struct Source {
    path: String,
    text: String,
    code: String,
}

impl Source {
    fn new(path: &str, text: &str) -> Source {
        Source { path: path.into(), text: text.into(), code: code_only(text) }
    }

    /// The top-level module that it belongs to.
    fn module(&self) -> &str {
        let first = self.path.split('/').next().unwrap_or_default();
        first.strip_suffix(".rs").unwrap_or(first)
    }
}

/// What `src/README.md` says.
struct Rules {
    /// Folders (with `/` at the end) and files, below `src/`.
    pure: Vec<String>,
    /// Module to its layer; 0 is the top. A module may use its own layer and those below it.
    layer: BTreeMap<String, usize>,
}

impl Rules {
    fn is_pure(&self, path: &str) -> bool {
        self.pure.iter().any(|p| path == p || (p.ends_with('/') && path.starts_with(p)))
    }
}

#[test]
fn pure_files_are_pure() {
    let rules = rules(&readme());
    let sources = sources();
    for listed in &rules.pure {
        let present = sources.iter().any(|s| &s.path == listed || s.path.starts_with(listed));
        assert!(present, "src/README.md lists {listed}, which has no file");
    }
    report(sources.iter().flat_map(|s| impurities(s, &rules)));
}

#[test]
fn unsafe_is_only_in_pg() {
    report(sources().iter().flat_map(misplaced_unsafe));
}

#[test]
fn every_unsafe_says_why_it_is_sound() {
    report(sources().iter().flat_map(unexplained_unsafe));
}

#[test]
fn dependencies_follow_the_direction() {
    let rules = rules(&readme());
    report(sources().iter().flat_map(|s| wrong_way(s, &rules)));
}

/// One way in for SQL: it pins search_path. A statement that ran elsewhere would find the operators of whoever has a schema
/// in the caller's path.
#[test]
fn sql_runs_in_one_place() {
    let sources = sources();
    let spi: Vec<&Source> = sources.iter().filter(|s| !SPI_FILES.contains(&s.path.as_str())).collect();
    report(spi.iter().flat_map(|s| foreign_spi(s)));
    let place = sources.iter().find(|s| s.path == SPI_FILES[0]).expect("src/pg/spi.rs");
    let connects: Vec<&str> = place.code.split("SPI_connect()").collect();
    assert_eq!(connects.len(), 2, "src/pg/spi.rs connects in one place");
    let pins = connects[0].rfind("fn connected").map(|at| &connects[0][at..]);
    assert!(
        pins.is_some_and(|body| body.contains("PATH.as_ptr()")),
        "src/pg/spi.rs connects with its path pinned"
    );
}

/// The script of CREATE EXTENSION pins it before anything else, since the schema may have been there before, with operators
/// in it.
#[test]
fn the_script_begins_with_its_path() {
    let script =
        fs::read_to_string(src().with_file_name("sql").join("schemas.sql")).expect("sql/schemas.sql");
    let first = script.lines().find(|line| !line.starts_with("--")).unwrap_or_default();
    assert_eq!(first, "SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);");
}

/// Where SPI may be named: the way in, and what keeps its plans.
const SPI_FILES: &[&str] = &["pg/spi.rs", "pg/plans.rs"];

fn foreign_spi(source: &Source) -> Vec<String> {
    let found =
        words(&source.code).into_iter().filter(|(_, word)| *word == "Spi" || word.starts_with("SPI_"));
    found
        .map(|(at, word)| {
            format!("{}:{}: {word}, but SQL runs through pg/spi.rs", source.path, line(&source.code, at))
        })
        .collect()
}

fn report(faults: impl Iterator<Item = String>) {
    let faults: Vec<String> = faults.collect();
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

fn src() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

fn readme() -> String {
    fs::read_to_string(src().join("README.md")).expect("src/README.md")
}

fn sources() -> Vec<Source> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|e| e == "rs") {
                found.push(path);
            }
        }
    }
    let (root, mut paths) = (src(), Vec::new());
    walk(&root, &mut paths);
    paths.sort();
    assert!(paths.len() > 10, "{} files in {}", paths.len(), root.display());
    let read = |path: &PathBuf| {
        let text = fs::read_to_string(path).expect("a source file");
        let below = path.strip_prefix(&root).expect("below src").to_string_lossy().replace('\\', "/");
        Source::new(&below, &text)
    };
    paths.iter().map(read).collect()
}

/// Reads the paragraphs that begin with `Direction:` and `**Pure**`.
fn rules(readme: &str) -> Rules {
    let paragraph = |start: &str| {
        readme
            .split("\n\n")
            .find(|p| p.starts_with(start))
            .unwrap_or_else(|| panic!("src/README.md has no paragraph {start}"))
            .to_string()
    };
    let direction = paragraph("Direction:");
    let arrows = direction.split(". ").next().unwrap_or_default();
    let mut layer = BTreeMap::new();
    for (depth, step) in arrows.split('→').enumerate() {
        for module in step.split('`').skip(1).step_by(2) {
            layer.insert(module.to_string(), depth);
        }
    }
    assert!(layer.len() > 5, "layers read: {layer:?}");
    let pure = paragraph("**Pure**");
    let list = pure.split_once("):").map(|(_, list)| list).expect("a list after the parenthesis");
    let pure = list.split('`').skip(1).step_by(2).flat_map(expand).collect();
    Rules { pure, layer }
}

/// `a/{b,c}.rs` is `a/b.rs` and `a/c.rs`.
fn expand(item: &str) -> Vec<String> {
    match item.split_once('{').and_then(|(head, rest)| Some((head, rest.split_once('}')?))) {
        Some((head, (names, tail))) => names.split(',').map(|n| format!("{head}{n}{tail}")).collect(),
        None => vec![item.to_string()],
    }
}

fn impurities(source: &Source, rules: &Rules) -> Vec<String> {
    if !rules.is_pure(&source.path) {
        return Vec::new();
    }
    let mut faults = Vec::new();
    if !source.code.contains("#![forbid(unsafe_code)]") {
        faults.push(format!("{}: #![forbid(unsafe_code)] is missing", source.path));
    }
    if !source.text.starts_with("//!") {
        faults.push(format!("{}: does not begin with a module doc", source.path));
    }
    for (at, word) in words(&source.code) {
        if ["pgrx", "pg_sys", "unsafe"].contains(&word) {
            faults.push(format!("{}:{}: `{word}` in a pure file", source.path, line(&source.code, at)));
        }
    }
    faults
}

fn misplaced_unsafe(source: &Source) -> Vec<String> {
    if source.path.starts_with("pg/") {
        return Vec::new();
    }
    let found = words(&source.code).into_iter().filter(|(_, word)| *word == "unsafe");
    found
        .map(|(at, _)| format!("{}:{}: unsafe outside src/pg", source.path, line(&source.code, at)))
        .collect()
}

/// How far above an `unsafe` its comment may begin, not counting comment and attribute lines.
const REACH: usize = 3;

fn unexplained_unsafe(source: &Source) -> Vec<String> {
    let mut faults = Vec::new();
    let lines: Vec<&str> = source.text.lines().collect();
    for (at, word) in words(&source.code) {
        if word != "unsafe" {
            continue;
        }
        let row = line(&source.code, at) - 1;
        let Some(needs) = need(&source.code[at + word.len()..]) else { continue };
        let in_file = needs == Need::Contract
            && !lines[row].contains("pub ")
            && module_doc(&lines).contains("# Safety");
        if !in_file && !explained(&lines, row, needs) {
            faults.push(format!("{}:{}: {}", source.path, row + 1, needs.complaint()));
        }
    }
    faults
}

#[derive(Clone, Copy, PartialEq)]
enum Need {
    /// Here the promise is made: `// SAFETY:`.
    Reason,
    /// Here it is asked of the caller: a `# Safety` section or `// SAFETY:`. What is not `pub` is called in its own file
    /// only, so a `# Safety` section in that file's module doc will do.
    Contract,
}

impl Need {
    fn complaint(self) -> &'static str {
        match self {
            Need::Reason => "unsafe without a SAFETY comment",
            Need::Contract => "unsafe declaration without a # Safety section or SAFETY comment",
        }
    }
}

/// What the text behind the word `unsafe` asks for; nothing for attributes and function pointer types.
fn need(rest: &str) -> Option<Need> {
    let rest = rest.trim_start();
    if rest.starts_with('{') || rest.starts_with("impl") {
        return Some(Need::Reason);
    }
    if rest.starts_with('(') {
        return None;
    }
    // The ABI is a literal, so it is blank here.
    let declared = rest.strip_prefix("extern").map_or(rest, |r| r.trim_start_matches([' ', '"', '\n']));
    match declared.strip_prefix("fn") {
        Some(after) if after.trim_start().starts_with('(') => None,
        _ => Some(Need::Contract),
    }
}

fn module_doc(lines: &[&str]) -> String {
    lines.iter().take_while(|l| l.starts_with("//!")).copied().collect()
}

fn explained(lines: &[&str], row: usize, need: Need) -> bool {
    let says =
        |line: &str| line.contains("SAFETY:") || (need == Need::Contract && line.contains("/// # Safety"));
    if says(lines[row]) {
        return true;
    }
    let mut code_lines = 0;
    for above in lines[..row].iter().rev() {
        if says(above) {
            return true;
        }
        let above = above.trim_start();
        if !above.starts_with("//") && !above.starts_with("#[") {
            code_lines += 1;
        }
        if code_lines > REACH {
            return false;
        }
    }
    false
}

fn wrong_way(source: &Source, rules: &Rules) -> Vec<String> {
    if source.path == "lib.rs" {
        return Vec::new();
    }
    let mut faults = Vec::new();
    for (at, path) in crate_paths(source) {
        let user = source.module();
        let used = path.split("::").next().unwrap_or_default().to_string();
        let place = format!("{}:{}: uses crate::{path}", source.path, line(&source.code, at));
        if rules.is_pure(&source.path) {
            if !names_pure(&path, rules) {
                faults.push(format!("{place}, which is not pure"));
            }
            continue;
        }
        if used == user || names_pure(&path, rules) {
            continue;
        }
        match (rules.layer.get(user), rules.layer.get(&used)) {
            (Some(from), Some(to)) if from <= to => {}
            (Some(_), Some(_)) => faults.push(format!("{place}, which is above {user}")),
            (_, None) => faults.push(format!("{place}, which has no place in the direction")),
            (None, _) => faults.push(format!("{place}, but {user} has no place in the direction")),
        }
    }
    faults
}

/// Whether a path below `crate::` leads into a pure folder or file.
fn names_pure(path: &str, rules: &Rules) -> bool {
    let names: Vec<&str> = path.split("::").collect();
    let (one, two) = (names[0], names.get(1).copied().unwrap_or_default());
    let candidates =
        [format!("{one}/"), format!("{one}.rs"), format!("{one}/{two}.rs"), format!("{one}/{two}/")];
    candidates.iter().any(|c| rules.pure.contains(c))
}

/// Paths below the crate's root that a file names, two names deep, groups taken apart. A `super` that climbs to the root
/// counts too.
fn crate_paths(source: &Source) -> Vec<(usize, String)> {
    let depth = source.path.matches('/').count() + usize::from(!source.path.ends_with("/mod.rs"));
    let root = format!("{}::", vec!["super"; depth].join("::"));
    let mut found = Vec::new();
    for start in ["crate::", root.as_str()] {
        for (at, _) in source.code.match_indices(start) {
            let before = source.code[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':' || c == '$') {
                continue;
            }
            let rest = &source.code[at + start.len()..];
            if start == root && (rest.starts_with('*') || inside_block(&source.code[..at])) {
                continue;
            }
            found.extend(heads(rest).into_iter().map(|path| (at, path)));
        }
    }
    found
}

/// In braces, `super` is relative to an inline module or a function: it does not reach the root.
fn inside_block(before: &str) -> bool {
    before.matches('{').count() != before.matches('}').count()
}

/// `a::b::c` gives `a::b`; `{a, b::{c, d}}` gives `a`, `b::c`, `b::d`.
fn heads(text: &str) -> Vec<String> {
    let text = text.trim_start();
    if let Some(group) = text.strip_prefix('{') {
        return items(group).into_iter().flat_map(|item| heads(&item)).collect();
    }
    let name = leading_name(text);
    if name.is_empty() {
        return Vec::new();
    }
    match text[name.len()..].trim_start().strip_prefix("::") {
        Some(rest) => {
            let rest = rest.trim_start();
            match rest.strip_prefix('{') {
                Some(group) => items(group)
                    .iter()
                    .map(|item| format!("{name}::{}", leading_name(item.trim_start())))
                    .collect(),
                None => vec![format!("{name}::{}", leading_name(rest))],
            }
        }
        None => vec![name.to_string()],
    }
}

fn leading_name(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

/// The items of a group whose opening brace has been read.
fn items(group: &str) -> Vec<String> {
    let (mut depth, mut item, mut found) = (0, String::new(), Vec::new());
    for c in group.chars() {
        match c {
            '}' if depth == 0 => break,
            ',' if depth == 0 => found.push(std::mem::take(&mut item)),
            _ => {
                depth += match c {
                    '{' => 1,
                    '}' => -1,
                    _ => 0,
                };
                item.push(c);
            }
        }
    }
    found.push(item);
    found.retain(|i| !i.trim().is_empty());
    found
}

/// Identifiers and keywords with their positions.
fn words(code: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut start = None;
    for (i, c) in code.char_indices().chain([(code.len(), ' ')]) {
        let in_word = c.is_alphanumeric() || c == '_';
        match (start, in_word) {
            (None, true) => start = Some(i),
            (Some(s), false) => {
                found.push((s, &code[s..i]));
                start = None;
            }
            _ => {}
        }
    }
    found
}

fn line(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

/// The text with comments and the contents of literals blanked, line by line the same length in lines.
fn code_only(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut i = 0;
    while i < chars.len() {
        let end = match (chars[i], chars.get(i + 1)) {
            ('/', Some('/')) => until(&chars, i, &['\n']),
            ('/', Some('*')) => block_comment(&chars, i),
            ('"', _) => string(&chars, i),
            ('r', Some('"' | '#')) if !after_word(&chars, i, "bc") => raw_string(&chars, i),
            ('\'', _) => char_literal(&chars, i),
            _ => i,
        };
        if end == i {
            out.push(chars[i]);
            i += 1;
        } else {
            out.extend(chars[i..end].iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
            i = end;
        }
    }
    out
}

/// Whether the character belongs to a longer word, of which `prefixes` don't count (`br""`, `cr""`).
fn after_word(chars: &[char], at: usize, prefixes: &str) -> bool {
    let Some(previous) = at.checked_sub(1).map(|p| chars[p]) else { return false };
    (previous.is_alphanumeric() || previous == '_') && !prefixes.contains(previous)
}

fn until(chars: &[char], from: usize, ends: &[char]) -> usize {
    chars[from..].iter().position(|c| ends.contains(c)).map_or(chars.len(), |n| from + n)
}

fn block_comment(chars: &[char], from: usize) -> usize {
    let (mut depth, mut i) = (0, from);
    while i < chars.len() {
        match (chars[i], chars.get(i + 1)) {
            ('/', Some('*')) => {
                depth += 1;
                i += 2;
            }
            ('*', Some('/')) => {
                depth -= 1;
                i += 2;
                if depth == 0 {
                    return i;
                }
            }
            _ => i += 1,
        }
    }
    chars.len()
}

fn string(chars: &[char], from: usize) -> usize {
    let mut i = from + 1;
    while i < chars.len() {
        match chars[i] {
            '\\' => i += 2,
            '"' => return i + 1,
            _ => i += 1,
        }
    }
    chars.len()
}

fn raw_string(chars: &[char], from: usize) -> usize {
    let hashes = chars[from + 1..].iter().take_while(|c| **c == '#').count();
    let open = from + 1 + hashes;
    if chars.get(open) != Some(&'"') {
        return from;
    }
    let mut i = open + 1;
    while i < chars.len() {
        if chars[i] == '"' && chars[i + 1..].iter().take(hashes).filter(|c| **c == '#').count() == hashes {
            return i + 1 + hashes;
        }
        i += 1;
    }
    chars.len()
}

/// The end of a character literal; `from` itself for a lifetime.
fn char_literal(chars: &[char], from: usize) -> usize {
    match (chars.get(from + 1), chars.get(from + 2)) {
        (Some('\\'), _) => until(chars, from + 3, &['\'']).saturating_add(1).min(chars.len()),
        (Some(_), Some('\'')) => from + 3,
        _ => from,
    }
}

// The checks themselves, on small texts: each finds what it is for.

const MAP: &str = "# Map\n\nDirection: `api` → {`refresh`, `monitor`} → {`catalog`, `snapshot`} → `pg`\n→ PostgreSQL. Pure \
                   parts are used by all.\n\n**Pure** (`#![forbid(unsafe_code)]`, no `pgrx`): `error.rs`, `model/`, \
                   `snapshot/shape.rs`, `scheduler/{dag,state}.rs`.\n\nrest `pg/`";

fn small_rules() -> Rules {
    let mut rules = rules(&MAP.replace("`monitor`", "`monitor`, `scheduler`"));
    rules.pure.sort();
    rules
}

#[test]
fn the_map_is_read() {
    let rules = small_rules();
    let pure = ["error.rs", "model/", "scheduler/dag.rs", "scheduler/state.rs", "snapshot/shape.rs"];
    assert_eq!(rules.pure, pure);
    let layers: BTreeSet<(usize, &str)> = rules.layer.iter().map(|(m, l)| (*l, m.as_str())).collect();
    let expected = [
        (0, "api"),
        (1, "monitor"),
        (1, "refresh"),
        (1, "scheduler"),
        (2, "catalog"),
        (2, "snapshot"),
        (3, "pg"),
    ];
    assert_eq!(layers, BTreeSet::from(expected));
}

#[test]
fn comments_and_literals_are_no_code() {
    let text = "a // unsafe\nb /* unsafe /* x */ unsafe */ c \"unsafe \\\" unsafe\" r#\"unsafe \" \"# 'u' '\\'' \
                &'a str c\"unsafe\" br\"unsafe\"\nunsafe_code";
    let code = code_only(text);
    assert!(words(&code).iter().all(|(_, w)| *w != "unsafe"), "{code}");
    assert_eq!(code.matches('\n').count(), text.matches('\n').count());
    let names: Vec<&str> = words(&code).into_iter().map(|(_, w)| w).collect();
    assert_eq!(names, ["a", "b", "c", "a", "str", "c", "b", "unsafe_code"]);
}

#[test]
fn impurity_is_found() {
    let rules = small_rules();
    let faults = |path: &str, text: &str| impurities(&Source::new(path, text), &rules).len();
    let good = "//! Doc.\n#![forbid(unsafe_code)]\n// unsafe pgrx\n";
    assert_eq!(faults("error.rs", good), 0);
    assert_eq!(faults("model/deep/x.rs", &format!("{good}use pgrx::pg_sys;")), 2);
    assert_eq!(faults("error.rs", &format!("{good}unsafe {{}}")), 1);
    assert_eq!(faults("error.rs", "//! Doc.\n"), 1);
    assert_eq!(faults("error.rs", "#![forbid(unsafe_code)]"), 1);
    assert_eq!(faults("snapshot/mod.rs", "use pgrx::pg_sys;"), 0, "not pure");
}

#[test]
fn misplaced_unsafe_is_found() {
    let faults = |path: &str, text: &str| misplaced_unsafe(&Source::new(path, text)).len();
    assert_eq!(faults("api/mod.rs", "#[unsafe(no_mangle)] fn f() { unsafe { g() } }"), 2);
    assert_eq!(faults("pg/mod.rs", "unsafe { g() }"), 0);
    assert_eq!(faults("api/mod.rs", "#![forbid(unsafe_code)] // unsafe"), 0);
}

#[test]
fn spi_elsewhere_is_found() {
    let faults = |text: &str| foreign_spi(&Source::new("pg/x.rs", text)).len();
    assert_eq!(faults("fn f() { pgrx::Spi::run(\"x\"); unsafe { pg_sys::SPI_connect() } }"), 2);
    assert_eq!(faults("// SPI_connect\nfn f() { spi::run(\"SPI_connect\") }"), 0);
}

#[test]
fn unexplained_unsafe_is_found() {
    let faults = |text: &str| unexplained_unsafe(&Source::new("pg/x.rs", text)).len();
    for good in [
        "// SAFETY: because.\nlet x = unsafe { f() };",
        "// SAFETY: because,\n// and so on\n#[inline]\nunsafe impl Send for X {}",
        "unsafe { f() } // SAFETY: because.",
        "/// # Safety\n/// Never null.\nunsafe fn f() {}",
        "/// # Safety\n/// Never null.\npub unsafe extern \"C-unwind\" fn f() {}",
        "//! Walks a tree.\n//!\n//! # Safety\n//! Nodes are valid.\n\nunsafe fn f() {}",
        "type F = unsafe extern \"C\" fn(i32);",
        "type F = Option<unsafe fn (i32)>;",
        "#[unsafe(no_mangle)]",
    ] {
        assert_eq!(faults(good), 0, "{good}");
    }
    for bad in [
        "let x = unsafe { f() };",
        "/// # Safety\n/// Not a reason.\nlet x = unsafe { f() };",
        "//! # Safety\n//! Nodes are valid.\n\npub unsafe fn f() {}",
        "//! # Safety\n//! Nodes are valid.\n\nlet x = unsafe { f() };",
        "unsafe impl Send for X {}",
        "unsafe fn f() {}",
        "unsafe extern \"C\" { fn f(); }",
        "// SAFETY: of something else.\na();\nb();\nc();\nd();\nunsafe { f() }",
    ] {
        assert_eq!(faults(bad), 1, "{bad}");
    }
}

#[test]
fn wrong_directions_are_found() {
    let rules = small_rules();
    let faults = |path: &str, text: &str| wrong_way(&Source::new(path, text), &rules).len();
    for (path, text, count) in [
        ("api/mod.rs", "use crate::pg::spi; use crate::{refresh, model::Oid}; crate::api::x()", 0),
        ("refresh/mod.rs", "use crate::{catalog::a, monitor, error::Error}; use crate::api::x;", 1),
        ("catalog/mod.rs", "use crate::{pg::{spi, lock}, refresh::plan, api};", 2),
        ("catalog/mod.rs", "use crate::scheduler::dag::order; use crate::scheduler::{state, launcher};", 1),
        ("pg/spi.rs", "use crate::error::Error; fn f() { crate::catalog::get() }", 1),
        ("pg/spi.rs", "use super::super::catalog::get;", 1),
        ("pg/mod.rs", "use super::catalog::get;", 1),
        ("pg/mod.rs", "mod tests { use super::spi; }", 0),
        ("pg/spi.rs", "use super::lock;", 0),
        ("model/mod.rs", "use crate::error::Error; use crate::snapshot::shape::X;", 0),
        ("model/mod.rs", "use crate::snapshot::capture;", 1),
        ("snapshot/shape.rs", "use crate::snapshot::store;", 1),
        ("pg/mod.rs", "// crate::api::x\nlet t = \"crate::api::x\";", 0),
        ("pg/mod.rs", "use crate::elsewhere::x;", 1),
        ("lib.rs", "use crate::api::x;", 0),
    ] {
        assert_eq!(faults(path, text), count, "{path}: {text}");
    }
}
