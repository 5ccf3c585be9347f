//! A crate of the workspace with its files.

use std::collections::BTreeSet;

use crate::tidy::{Package, Workspace};
use xtask_run as run;

/// A member of the workspace with its hand-written files.
pub(crate) struct Member<'a> {
    pub(super) package: Package<'a>,
    /// `crates/pleg/`.
    directory: String,
    /// Path relative to the workspace's root, and content.
    files: Vec<(&'a str, &'a str)>,
    /// Every word of its code.
    pub(super) words: BTreeSet<&'a str>,
}

impl<'a> Member<'a> {
    /// All members of the workspace.
    pub(crate) fn all(workspace: &'a Workspace) -> Vec<Self> {
        let directory = |package: &Package<'_>| {
            let directory = package.path.strip_suffix("Cargo.toml");
            directory.unwrap_or_default().to_owned()
        };
        let directories: Vec<String> = workspace.members().map(|p| directory(&p)).collect();
        // A crate may be in the directory of another.
        let owner = |path: &str| {
            let around = directories.iter().filter(|dir| path.starts_with(*dir));
            around.max_by_key(|dir| dir.len())
        };
        workspace
            .members()
            .map(|package| {
                let directory = directory(&package);
                let files = workspace
                    .sources
                    .iter()
                    .filter(|(path, _)| owner(path) == Some(&directory))
                    .map(|(path, text)| (path.as_str(), text.as_str()));
                let files: Vec<_> = files.collect();
                Self {
                    words: files
                        .iter()
                        .flat_map(|(_, text)| code(text))
                        .flat_map(words)
                        .collect(),
                    files,
                    package,
                    directory,
                }
            })
            .collect()
    }

    /// `windlass-pleg`.
    pub(super) fn name(&self) -> &'a str {
        let value: &'a serde_json::Value = self.package.value;
        value["name"].as_str().unwrap_or_default()
    }

    /// `windlass-pleg-0.1.0`, the directory in its archive.
    pub(super) fn archive(&self) -> String {
        let version = self.package.value["version"].as_str().unwrap_or_default();
        format!("{}-{version}", self.name())
    }

    pub(super) fn directory(&self) -> &str {
        &self.directory
    }

    /// Whether it has a library.
    pub(super) fn is_library(&self) -> bool {
        self.targets("lib").next().is_some()
    }

    /// Whether it has a program.
    pub(super) fn is_program(&self) -> bool {
        self.targets("bin").next().is_some()
    }

    pub(super) fn is_published(&self) -> bool {
        // Absent: any registry; empty list: none.
        self.package.value["publish"].is_null()
    }

    pub(super) fn has_features(&self) -> bool {
        let features = self.package.value["features"].as_object();
        features.is_some_and(|features| !features.is_empty())
    }

    /// Its `lib.rs`.
    pub(super) fn root(&self) -> String {
        format!("{}src/lib.rs", self.directory)
    }

    pub(super) fn root_text(&self) -> &'a str {
        self.text(&self.root())
    }

    /// Content of a file, empty if missing.
    pub(super) fn text(&self, path: &str) -> &'a str {
        let file = self.files.iter().find(|(other, _)| *other == path);
        file.map_or("", |(_, text)| text)
    }

    /// All its files: path and content.
    pub(super) fn files(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.files.iter().copied()
    }

    /// Code of the library and program, without tests.
    pub(super) fn sources(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let source = format!("{}src/", self.directory);
        self.files()
            .filter(move |(path, _)| path.starts_with(&source) && !is_test(path))
            .map(|(path, text)| (path, without_tests(text)))
    }

    /// Files of tests, examples and benches.
    pub(super) fn outside(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let source = format!("{}src/", self.directory);
        self.files()
            .filter(move |(path, _)| !path.starts_with(&source))
    }

    /// Name and path of its examples.
    pub(super) fn examples(&self) -> Vec<(&str, String)> {
        let root = format!("{}/", run::root().display());
        self.targets("example")
            .filter_map(|target| {
                let path = target["src_path"].as_str()?;
                let path = path.strip_prefix(&root).unwrap_or(path);
                Some((target["name"].as_str()?, path.to_owned()))
            })
            .collect()
    }

    /// Whether its LICENSE is that of the workspace.
    pub(super) fn has_license(&self) -> bool {
        let read = |path: &str| std::fs::read(run::root().join(path)).ok();
        let mine = read(&format!("{}LICENSE", self.directory));
        mine.is_some() && mine == read("LICENSE")
    }

    fn targets<'s>(&'s self, kind: &'s str) -> impl Iterator<Item = &'s serde_json::Value> {
        let targets = self.package.value["targets"].as_array();
        let is_kind = move |target: &&serde_json::Value| {
            let kinds = target["kind"].as_array();
            kinds.is_some_and(|kinds| kinds.iter().any(|other| other == kind))
        };
        targets.into_iter().flatten().filter(is_kind)
    }
}

/// A file that is only compiled for tests.
pub(super) fn is_test(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/")
}

/// The file without its tests module, which is the last item.
pub(super) fn without_tests(text: &str) -> &str {
    match text.find("#[cfg(test)]\nmod tests {") {
        Some(end) => &text[..end],
        None => text,
    }
}

/// Words of the text that could be identifiers.
pub(super) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty())
}

/// Lines that are not only a comment.
pub(super) fn code(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
}
