//! Writes the files that go beside the library: the control file and the SQL script of this version. pgrx leaves what
//! the script is made from in a section of the library. `cargo pgrx` does the same, but takes longer to compile than
//! the extension.
//!
//! usage: schema SECTION FOLDER    SECTION: a file with the contents of section .pgrxsc

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use pgrx_sql_entity_graph::section::decode_entities;
use pgrx_sql_entity_graph::{ControlFile, PgrxSql, SqlGraphEntity};

const NAME: &str = env!("CARGO_PKG_NAME");
const VERSION: &str = env!("CARGO_PKG_VERSION");

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(section), Some(folder)) = (arguments.next(), arguments.next()) else {
        return Err("usage: schema SECTION FOLDER".into());
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let control = root.join(format!("{NAME}.control"));

    let section = fs::read(section)?;
    let mut entities = decode_entities(&section)?;
    if entities.is_empty() {
        return Err("the library has no schema section: the linker dropped it".into());
    }
    entities.insert(
        0,
        SqlGraphEntity::ExtensionRoot(ControlFile::from_path_with_cargo_version(&control, VERSION)?),
    );
    PgrxSql::build(entities.into_iter(), NAME.to_string(), false)?
        .to_file(folder.join(format!("{NAME}--{VERSION}.sql")))?;

    copy(&control, &folder)?;
    for entry in fs::read_dir(root.join("sql"))? {
        let path = entry?.path();
        if is_upgrade_script(&path) {
            copy(&path, &folder)?;
        }
    }
    Ok(())
}

/// `pgtrickle--OLD--NEW.sql`
fn is_upgrade_script(path: &Path) -> bool {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return false };
    name.ends_with(".sql") && name.starts_with(&format!("{NAME}--")) && name.matches("--").count() == 2
}

fn copy(file: &Path, folder: &Path) -> Result<(), Box<dyn Error>> {
    let name = file.file_name().ok_or("not a file")?;
    Ok(fs::write(folder.join(name), fs::read_to_string(file)?.replace("@CARGO_VERSION@", VERSION))?)
}
