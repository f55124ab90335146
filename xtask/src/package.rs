//! `package`: a Debian package of the one binary.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::{step, target};

/// The files to pack: source and destination.
const FILES: [(&str, &str); 4] = [
    ("packaging/hapax.service", "lib/systemd/system/hapax.service"),
    ("packaging/hapax.toml", "etc/hapax/hapax.toml"),
    ("packaging/grafana.json", "usr/share/hapax/grafana.json"),
    ("LICENSE", "usr/share/doc/hapax/copyright"),
];

/// Where shells look for completions.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/hapax"),
    ("zsh", "usr/share/zsh/vendor-completions/_hapax"),
    ("fish", "usr/share/fish/vendor_completions.d/hapax.fish"),
];

pub(crate) fn package() -> Result<(), String> {
    let build = ["build", "--release", "--locked", "--package", "hapax-cli", "--features"];
    step("cargo", &[&build[..], &["brokers,otlp"]].concat())?;
    let target = target();
    let root = target.join("package");
    let _ = fs::remove_dir_all(&root);
    let made = pack(&target.join("release/hapax"), Path::new("."), &root, &target)?;
    eprintln!("xtask: {}", made.display());
    Ok(())
}

/// Lays out the files of this binary and its sources under `root`, and makes a package of them.
fn pack(binary: &Path, sources: &Path, root: &Path, target: &Path) -> Result<PathBuf, String> {
    put(binary, &root.join("usr/bin/hapax"))?;
    for (from, to) in FILES {
        put(&sources.join(from), &root.join(to))?;
    }
    for (shell, to) in COMPLETIONS {
        let printed = Command::new(binary).args(["completions", shell]).output();
        let printed = printed.ok().filter(|printed| printed.status.success());
        let printed = printed.ok_or(format!("{} completions {shell} fails", binary.display()))?;
        write(&root.join(to), &printed.stdout)?;
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
         Description: effects that happen once\n A ledger of effects: each is performed at most once. An\n \
         outcome that cannot be known is called unknown and shown to an operator.\n"
    );
    write(&root.join("DEBIAN/control"), control.as_bytes())?;
    write(&root.join("DEBIAN/conffiles"), b"/etc/hapax/hapax.toml\n")?;
    let made = target.join(format!("hapax_{version}_{architecture}.deb"));
    let build = ["--root-owner-group", "--build", &root.to_string_lossy(), &made.to_string_lossy()];
    step("dpkg-deb", &build)?;
    Ok(made)
}

fn put(from: &Path, to: &Path) -> Result<(), String> {
    let fail = |error: std::io::Error| format!("{}: {error}", from.display());
    fs::create_dir_all(to.parent().unwrap_or(Path::new("."))).map_err(fail)?;
    fs::copy(from, to).map(drop).map_err(fail)
}

fn write(to: &Path, text: &[u8]) -> Result<(), String> {
    let fail = |error: std::io::Error| format!("{}: {error}", to.display());
    fs::create_dir_all(to.parent().unwrap_or(Path::new("."))).map_err(fail)?;
    fs::write(to, text).map_err(fail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn run(program: &str, words: &[&str]) -> (String, String) {
        let ran = Command::new(program).args(words).output().expect("it runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(ran.status.success(), "{program} {words:?}: {}", text(&ran.stderr));
        (text(&ran.stdout), text(&ran.stderr))
    }

    /// A package has every file that the documents name, in its place, and systemd accepts its unit.
    #[test]
    fn a_package_has_all_of_it() {
        let sources = Path::new("..");
        let room = tempfile::tempdir().expect("a directory");
        let (binary, root) = (room.path().join("hapax"), room.path().join("package"));
        fs::write(&binary, "#!/bin/sh\necho \"$2 completes hapax $1\"\n").expect("written");
        fs::set_permissions(&binary, fs::Permissions::from_mode(0o755)).expect("set");
        let made = pack(&binary, sources, &root, room.path()).expect("a package");
        let made = made.to_string_lossy();

        let (listed, _) = run("dpkg-deb", &["--contents", &made]);
        let mut files: Vec<(&str, &str, &str)> = listed
            .lines()
            .filter(|line| line.starts_with('-'))
            .map(|line| line.split_whitespace().collect::<Vec<_>>())
            .map(|words| (words[5], words[0], words[1]))
            .collect();
        files.sort_unstable();
        let (plain, program) = ("-rw-r--r--", "-rwxr-xr-x");
        let expected = [
            ("./etc/hapax/hapax.toml", plain),
            ("./lib/systemd/system/hapax.service", plain),
            ("./usr/bin/hapax", program),
            ("./usr/share/bash-completion/completions/hapax", plain),
            ("./usr/share/doc/hapax/copyright", plain),
            ("./usr/share/fish/vendor_completions.d/hapax.fish", plain),
            ("./usr/share/hapax/grafana.json", plain),
            ("./usr/share/zsh/vendor-completions/_hapax", plain),
        ];
        assert_eq!(files, expected.map(|(name, mode)| (name, mode, "root/root")));
        for (shell, to) in COMPLETIONS {
            let text = fs::read_to_string(root.join(to)).expect("completions");
            assert_eq!(text, format!("{shell} completes hapax completions\n"));
        }
        let (fields, _) = run("dpkg-deb", &["--field", &made]);
        assert!(fields.contains("Package: hapax\n"), "{fields}");
        let information = ["--info", &made, "conffiles"];
        assert_eq!(run("dpkg-deb", &information).0, "/etc/hapax/hapax.toml\n");

        let unit = fs::read_to_string(root.join(FILES[0].1)).expect("a unit");
        let begun = "\nExecStart=/usr/bin/hapax serve --config /etc/hapax/hapax.toml ";
        assert!(unit.contains(begun), "what it starts is in the package: {unit}");
        if !crate::run::exists("systemd-analyze", &["--version"]) {
            eprintln!("skipped: systemd-analyze is not installed");
            return;
        }
        // The same unit, except for the path of the program before it is installed.
        let copy = room.path().join("hapax.service");
        let program = binary.to_string_lossy();
        fs::write(&copy, unit.replace("/usr/bin/hapax", &program)).expect("written");
        let (_, output) = run("systemd-analyze", &["verify", "--man=no", &copy.to_string_lossy()]);
        assert_eq!(output, "");
    }
}
