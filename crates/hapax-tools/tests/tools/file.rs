//! The file tool.

use std::fs;
use std::os::unix::fs::symlink;

use hapax::{Failure, Finding, Safety, Settling};
use hapax_core::json::Json;
use hapax_items::{Call, Class, Difference, Tool as _};
use hapax_tools::{FileSettings, FileTool};
use tempfile::TempDir;

use crate::stage::{call, compare, found, json, mutate, text};

fn tool() -> (TempDir, FileTool) {
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path().join("root");
    fs::create_dir(&root).expect("a directory");
    let tool = FileTool::new(FileSettings::new(root)).expect("a tool");
    (directory, tool)
}

#[tokio::test]
async fn a_file_is_written_read_and_removed() {
    let (directory, tool) = tool();
    let write = call(&tool, "write", r#"{"path": "a/b/c.txt", "content": "hällo\n"}"#);
    assert_eq!(text(&write.plan.identity), r#"{"path":"a/b/c.txt"}"#);
    let result = text(&mutate(&tool, &write).await.unwrap());
    assert!(result.starts_with(r#"{"digest":"sha256:"#), "{result}");
    assert!(result.ends_with(r#""path":"a/b/c.txt","size":7}"#), "{result}");
    let file = directory.path().join("root/a/b/c.txt");
    assert_eq!(fs::read(&file).unwrap(), "hällo\n".as_bytes());
    let folder = fs::read_dir(file.parent().unwrap()).unwrap();
    assert_eq!(folder.count(), 1, "no temporary file remains");
    let read = tool.read("read", &json(r#"{"path": "a/b/c.txt"}"#)).await.unwrap();
    assert_eq!(text(&read), r#"{"content":"hällo\n","path":"a/b/c.txt","size":7}"#);
    fs::write(&file, [0xff]).unwrap();
    let read = tool.read("read", &json(r#"{"path": "a/b/c.txt"}"#)).await.unwrap();
    assert_eq!(
        text(&read),
        r#"{"content":"/w==","encoding":"base64","path":"a/b/c.txt","size":1}"#
    );
    let remove = call(&tool, "remove", r#"{"path": "a/b/c.txt"}"#);
    for _ in 0..2 {
        assert_eq!(text(&mutate(&tool, &remove).await.unwrap()), r#"{"path":"a/b/c.txt"}"#);
        assert!(!file.exists());
    }
}

/// Proves I-6.
#[test]
fn payloads_differ_in_three_degrees() {
    let (_directory, tool) = tool();
    for (one, other, expected) in [
        ("a\nb\n", "a \r\nb", Difference::Equivalent),
        ("a\n\n", "a", Difference::Equivalent),
        ("a\nb", "a\n\nb", Difference::Minor),
        ("\n a\n \n\nb", " a\r\nb\n", Difference::Minor),
        (r#"{"a": 1, "b": ["é"]}"#, "{\"b\":[\"\\u00e9\"],\n\"a\":1.0}", Difference::Minor),
        (r#"{"a": null}"#, "{}", Difference::Significant),
        ("[1, 2]", "[2, 1]", Difference::Significant),
        ("1.10", "1.1", Difference::Significant),
        ("\"a\"", " \"a\"", Difference::Significant),
        ("a\nb", "a b", Difference::Significant),
        ("a\nb", "b\n\na", Difference::Significant),
        (" a", "a", Difference::Significant),
        ("a\n\n b", "a\nb", Difference::Significant),
        ("a", "b", Difference::Significant),
        ("a", "", Difference::Significant),
    ] {
        let arguments = |content| {
            text(&Json::object([("path", Json::text("f")), ("content", Json::text(content))]))
        };
        let degree = compare(&tool, "write", &arguments(one), &arguments(other));
        assert_eq!(degree, expected, "{one:?} {other:?}");
    }
}

/// Proves K-7: a lookup finds out whether a file was written, and a holder that was stopped with a
/// temporary file cannot put that file in place any more.
#[tokio::test]
async fn a_file_says_whether_it_was_written() {
    let (directory, tool) = tool();
    let root = directory.path().join("root");
    assert!(matches!(tool.safety("write"), Safety::Reconcilable(Settling::AfterMs(1..))));
    let write = call(&tool, "write", r#"{"path": "d/f", "content": "new"}"#);
    assert_eq!(tool.reconcile(&write).await, Finding::NotFound);
    let result = text(&mutate(&tool, &write).await.unwrap());
    assert_eq!(found(tool.reconcile(&write).await), result);

    let hex = &write.key.to_string()["sha256:".len()..][..16];
    let temporary = root.join(format!("d/.hapax-{hex}-{}", write.fence));
    fs::write(root.join("d/f"), "older").unwrap();
    fs::write(&temporary, "ne").unwrap();
    for _ in 0..2 {
        assert_eq!(tool.reconcile(&write).await, Finding::NotFound, "for as long as it takes");
        assert!(!temporary.exists());
    }

    let remove = call(&tool, "remove", r#"{"path": "d/f"}"#);
    fs::remove_file(root.join("d/f")).unwrap();
    assert_eq!(found(tool.reconcile(&remove).await), r#"{"path":"d/f"}"#);
    fs::remove_dir_all(root.join("d")).unwrap();
    assert_eq!(found(tool.reconcile(&remove).await), r#"{"path":"d/f"}"#);
}

/// Proves I-8: a file that was changed or made by another program since does not say that nothing
/// happened, and is neither written over nor removed.
#[tokio::test]
async fn a_later_change_by_a_person_is_not_undone() {
    let (directory, tool) = tool();
    let file = directory.path().join("root/f");
    let write = call(&tool, "write", r#"{"path": "f", "content": "new"}"#);
    mutate(&tool, &write).await.unwrap();
    fs::write(&file, "newer").unwrap();
    let finding = tool.reconcile(&write).await;
    assert!(matches!(finding, Finding::CannotTell(_)), "{finding:?}");

    let remove = call(&tool, "remove", r#"{"path": "f"}"#);
    mutate(&tool, &remove).await.unwrap();
    fs::write(&file, "another").unwrap();
    let finding = tool.reconcile(&remove).await;
    assert!(matches!(finding, Finding::CannotTell(_)), "{finding:?}");
}

/// Files that a lookup set aside are gone once the file is written after all.
#[tokio::test]
async fn nothing_is_left_of_an_attempt_that_was_looked_for() {
    let (directory, tool) = tool();
    let root = directory.path().join("root");
    let hapax = hapax::Hapax::builder().in_memory();
    let write = call(&tool, "write", r#"{"path": "f", "content": "new"}"#);
    fs::write(root.join("f"), "older").unwrap();
    let (tool, write, root) = (&tool, &write, &root);
    for nth in 1..=2 {
        let effect = hapax.effect(write.key).safety(tool.safety("write"));
        let ended = effect.run(|claim| async move {
            let call = Call { fence: claim.fence(), ..write.clone() };
            if nth == 1 {
                let hex = &write.key.to_string()["sha256:".len()..][..16];
                fs::write(root.join(format!(".hapax-{hex}-{}", call.fence)), "ne").unwrap();
                assert_eq!(tool.reconcile(&call).await, Finding::NotFound);
                assert_eq!(fs::read_dir(root).unwrap().count(), 2);
                return Err(Failure::not_done("it was looked for"));
            }
            tool.mutate(&call, &claim).await.unwrap();
            Ok("written")
        });
        assert_eq!(ended.await.is_ok(), nth == 2);
    }
    assert_eq!(fs::read(root.join("f")).unwrap(), b"new");
    assert_eq!(fs::read_dir(root).unwrap().count(), 1, "the file alone");
}

#[tokio::test]
async fn paths_stay_inside_the_directory() {
    let (directory, tool) = tool();
    let root = directory.path().join("root");
    let secret = directory.path().join("secret");
    fs::write(&secret, "secret").unwrap();
    for path in [
        "../secret",
        "a/../../secret",
        "/etc/passwd",
        "",
        ".",
        "a//b",
        "a/",
        "./a",
        "a\\\\..\\\\b",
        "a\\u0000b",
        ".hapax-0-1",
    ] {
        let arguments = json(&format!(r#"{{"path": "{path}", "content": "x"}}"#));
        let error = tool.plan("write", &arguments).unwrap_err();
        assert_eq!(error.class, Class::Logic, "{path}: {error}");
        let arguments = json(&format!(r#"{{"path": "{path}"}}"#));
        assert_eq!(tool.read("read", &arguments).await.unwrap_err().class, Class::Logic, "{path}");
    }
    symlink(directory.path(), root.join("out")).unwrap();
    symlink(&secret, root.join("link")).unwrap();
    for path in ["out/secret", "link"] {
        let read = json(&format!(r#"{{"path": "{path}"}}"#));
        let error = tool.read("read", &read).await.unwrap_err();
        assert_eq!(error.class, Class::Precondition, "{path}: {error}");
    }
    let write = call(&tool, "write", r#"{"path": "out/secret", "content": "x"}"#);
    assert_eq!(mutate(&tool, &write).await.unwrap_err().class, Class::Precondition);
    assert!(matches!(tool.reconcile(&write).await, Finding::CannotTell(_)));
    let remove = call(&tool, "remove", r#"{"path": "out/secret"}"#);
    assert_eq!(mutate(&tool, &remove).await.unwrap_err().class, Class::Precondition);
    let write = call(&tool, "write", r#"{"path": "link", "content": "x"}"#);
    mutate(&tool, &write).await.expect("the link is replaced, and not what it leads to");
    assert_eq!(fs::read(&secret).unwrap(), b"secret");
    assert_eq!(fs::read(root.join("link")).unwrap(), b"x");
}

#[tokio::test]
async fn a_path_that_is_no_file_or_too_large_is_refused() {
    let (directory, tool) = tool();
    let root = directory.path().join("root");
    fs::create_dir(root.join("folder")).unwrap();
    fs::write(root.join("large"), vec![b'x'; 1024 * 1024 + 1]).unwrap();
    let pipe = std::process::Command::new("mkfifo").arg(root.join("pipe")).status().unwrap();
    assert!(pipe.success());
    for path in ["folder", "large", "pipe", "absent"] {
        let error =
            tool.read("read", &json(&format!(r#"{{"path": "{path}"}}"#))).await.unwrap_err();
        assert_eq!(error.class, Class::Precondition, "{path}: {error}");
    }
    let write = call(&tool, "write", r#"{"path": "folder", "content": "x"}"#);
    assert_eq!(mutate(&tool, &write).await.unwrap_err().class, Class::Precondition);
    let remove = call(&tool, "remove", r#"{"path": "folder"}"#);
    assert_eq!(mutate(&tool, &remove).await.unwrap_err().class, Class::Precondition);
    let names: Vec<_> =
        fs::read_dir(&root).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(names.len(), 3, "no temporary file remains: {names:?}");
    let large = format!(r#"{{"path": "f", "content": "{}"}}"#, "x".repeat(1024 * 1024 + 1));
    assert_eq!(tool.plan("write", &json(&large)).unwrap_err().class, Class::Logic);
    assert!(FileTool::new(FileSettings::new(root.join("absent"))).is_err());
}
