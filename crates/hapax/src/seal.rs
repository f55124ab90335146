//! The key that signs the journal's heads, in a file of its own beside the ledger.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use hapax_core::checkpoint::Signer;
use hapax_store::StoreError;

/// The file of the signing key.
pub(crate) fn path(database: &Path) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push("-key");
    path.into()
}

/// Reads the signing key, or makes one if there is none. The file holds 32 secret bytes and
/// is readable by its owner only.
pub(crate) fn signer(database: &Path) -> Result<Signer, StoreError> {
    let path = path(database);
    let io = |error: std::io::Error| {
        StoreError::Unavailable(format!("the signing key {}: {error}", path.display()))
    };
    match read(&path) {
        Ok(signer) => Ok(signer),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            create(&path).map_err(io)?;
            read(&path).map_err(io)
        }
        Err(error) => Err(io(error)),
    }
}

fn read(path: &Path) -> std::io::Result<Signer> {
    let mut seed = [0; 32];
    File::open(path)?.read_exact(&mut seed)?;
    Ok(Signer::from_seed(&seed))
}

/// Written whole under another name and then linked, so that of two processes one wins and
/// neither reads half a key.
fn create(path: &Path) -> std::io::Result<()> {
    let seed: [u8; 32] = crate::engine::random().map_err(std::io::Error::other)?;
    let draft = path.with_extension(format!("draft-{}", std::process::id()));
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&draft)?;
    file.write_all(&seed)?;
    file.sync_all()?;
    let linked = std::fs::hard_link(&draft, path);
    std::fs::remove_file(&draft)?;
    match linked {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}
