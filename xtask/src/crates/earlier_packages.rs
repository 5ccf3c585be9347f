//! Archives of an earlier run.
//!
//! `cargo package` compiles each crate against the archives of the others. It unpacks and compiles
//! them once for each name and version, so without removal it would use those of an earlier run.

use std::fs;
use std::io;
use std::path::Path;

use anyhow::Context;

use super::member::Member;

/// Removes the unpacked archives of the workspace's crates, and the target directory in which they
/// are compiled.
pub(super) fn remove(
    members: &[Member<'_>],
    cargo_home: &Path,
    target: &Path,
) -> anyhow::Result<()> {
    allow_missing(fs::remove_dir_all(target))
        .with_context(|| format!("cannot remove {}", target.display()))?;
    let names: Vec<String> = members.iter().map(Member::archive).collect();
    let sources = cargo_home.join("registry/src");
    remove_from(&sources, &names).with_context(|| format!("cannot clear {}", sources.display()))
}

fn remove_from(sources: &Path, names: &[String]) -> io::Result<()> {
    let registries = match fs::read_dir(sources) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        registries => registries?,
    };
    for registry in registries {
        let registry = registry?;
        // a directory of archives has no host before its hash
        if !registry.file_name().as_encoded_bytes().starts_with(b"-") {
            continue;
        }
        for name in names {
            allow_missing(fs::remove_dir_all(registry.path().join(name)))?;
        }
    }
    Ok(())
}

fn allow_missing(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_own_archives_of_local_registries_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let names = ["windlass-pleg-0.1.0".to_owned()];
        let paths = [
            ("-d67360975ae5c9a4/windlass-pleg-0.1.0", false),
            ("-d67360975ae5c9a4/windlass-pleg-0.2.0", true),
            ("index.crates.io-1949cf8c6b5b557f/windlass-pleg-0.1.0", true),
        ];
        for (path, _) in paths {
            fs::create_dir_all(dir.path().join(path).join("src")).unwrap();
        }
        remove_from(dir.path(), &names).unwrap();
        for (path, stays) in paths {
            assert_eq!(dir.path().join(path).exists(), stays, "{path}");
        }
        remove_from(&dir.path().join("missing"), &names).unwrap();
    }
}
