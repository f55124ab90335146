//! The key that signs the journal's heads, in a file of its own: beside a ledger in a file, or in
//! the user's own directory for a ledger in a database.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use hapax_core::checkpoint::Signer;
use hapax_store::StoreError;

/// The file of the signing key of a ledger in a file.
pub(crate) fn beside(database: &Path) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push("-key");
    path.into()
}

/// Reads the signing key, or makes one if there is none. The file holds 32 secret bytes and
/// is readable by its owner only.
pub(crate) fn signer(path: &Path) -> Result<Signer, StoreError> {
    let io = |error: std::io::Error| {
        StoreError::Unavailable(format!("the signing key {}: {error}", path.display()))
    };
    match read(path) {
        Ok(signer) => Ok(signer),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            create(path).map_err(io)?;
            read(path).map_err(io)
        }
        Err(error) => Err(io(error)),
    }
}

/// The file of the signing key of a ledger in a database; `None` for a user without a home.
#[cfg(feature = "postgres")]
pub(crate) fn at_home(ledger: &str) -> Option<PathBuf> {
    let data = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from);
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/share"));
    Some(data.or_else(home)?.join("hapax").join(format!("{ledger}-key")))
}

fn read(path: &Path) -> std::io::Result<Signer> {
    let mut seed = [0; 32];
    File::open(path)?.read_exact(&mut seed)?;
    Ok(Signer::from_seed(&seed))
}

/// Writes the key whole under a unique name, and then links it. When two processes make one at the
/// same time, one wins and neither reads half a key.
fn create(path: &Path) -> std::io::Result<()> {
    let seed: [u8; 32] = crate::engine::random().map_err(std::io::Error::other)?;
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    let dice: [u8; 8] = crate::engine::random().map_err(std::io::Error::other)?;
    let draft = path.with_extension(format!("draft-{:016x}", u64::from_be_bytes(dice)));
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&draft)?;
    file.write_all(&seed)?;
    file.sync_all()?;
    let linked = std::fs::hard_link(&draft, path);
    std::fs::remove_file(&draft)?;
    match linked {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        other => other?,
    }
    // Its signatures outlive a power cut, so its name must too.
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_concurrent_signing_keys_one_wins() {
        for _ in 0..20 {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("ledger-key");
            let keys: Vec<String> = std::thread::scope(|scope| {
                let make = || signer(&path).map(|signer| signer.verifier().to_string());
                let makers: Vec<_> = (0..8).map(|_| scope.spawn(make)).collect();
                makers.into_iter().map(|maker| maker.join().unwrap().unwrap()).collect()
            });
            let kept = signer(&path).unwrap().verifier().to_string();
            assert!(keys.iter().all(|key| *key == kept), "{keys:?}");
            assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "drafts are left");
        }
    }
}
