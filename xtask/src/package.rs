//! `package`: a Debian package of the one binary.

use std::fs;
use std::path::{Path, PathBuf};

use crate::run::step;

/// What goes where, from where.
const FILES: [(&str, &str); 2] = [
    ("packaging/hapax.service", "lib/systemd/system/hapax.service"),
    ("packaging/hapax.toml", "etc/hapax/hapax.toml"),
];

pub(crate) fn package() -> Result<(), String> {
    let build = ["build", "--release", "--locked", "--package", "hapax-cli", "--features"];
    step("cargo", &[&build[..], &["brokers,otlp"]].concat())?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or("target".into(), PathBuf::from);
    let root = target.join("package");
    let _ = fs::remove_dir_all(&root);
    put(&target.join("release/hapax"), &root.join("usr/bin/hapax"))?;
    for (from, to) in FILES {
        put(Path::new(from), &root.join(to))?;
    }
    let version = env!("CARGO_PKG_VERSION");
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let control = format!(
        "Package: hapax\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: hapax\n\
         Section: admin\nPriority: optional\nDepends: libc6 (>= 2.36), libgcc-s1, ca-certificates\n\
         Description: effects that happen once\n A ledger of effects: each is performed at most once, and what nobody\n \
         can know is called unknown and shown to someone.\n"
    );
    write(&root.join("DEBIAN/control"), &control)?;
    write(&root.join("DEBIAN/conffiles"), "/etc/hapax/hapax.toml\n")?;
    let package = target.join(format!("hapax_{version}_{architecture}.deb"));
    let (root, made) = (root.to_string_lossy(), package.to_string_lossy());
    step("dpkg-deb", &["--root-owner-group", "--build", &root, &made])?;
    eprintln!("xtask: {made}");
    Ok(())
}

fn put(from: &Path, to: &Path) -> Result<(), String> {
    let fail = |error: std::io::Error| format!("{}: {error}", from.display());
    fs::create_dir_all(to.parent().unwrap_or(Path::new("."))).map_err(fail)?;
    fs::copy(from, to).map(drop).map_err(fail)
}

fn write(to: &Path, text: &str) -> Result<(), String> {
    let fail = |error: std::io::Error| format!("{}: {error}", to.display());
    fs::create_dir_all(to.parent().unwrap_or(Path::new("."))).map_err(fail)?;
    fs::write(to, text).map_err(fail)
}
