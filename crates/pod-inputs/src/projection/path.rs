//! Paths of files in a volume (upstream atomic writer).

use std::fmt;

const MAX_PATH: usize = 4096;
const MAX_FILE_NAME: usize = 255;

/// Error of an invalid path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathError {
    path: String,
    rule: &'static str,
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid path {:?}: {}", self.path, self.rule)
    }
}

/// Returns the normalized path.
pub(super) fn clean(path: &str) -> Result<String, PathError> {
    let reject = |rule| {
        Err(PathError {
            path: path.to_owned(),
            rule,
        })
    };
    if path.starts_with('/') {
        return reject("must be relative");
    }
    if path.len() > MAX_PATH {
        return reject("must be no more than 4096 characters");
    }
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => return reject("must not contain '..'"),
            _ if part.len() > MAX_FILE_NAME => {
                return reject("file names must be no more than 255 characters");
            }
            _ if part.contains('\0') => return reject("must not contain a zero byte"),
            // reserved by the atomic writer
            _ if parts.is_empty() && part.starts_with("..") => {
                return reject("must not start with '..'");
            }
            _ => parts.push(part),
        }
    }
    if parts.is_empty() {
        return reject("must not be empty");
    }
    Ok(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_outside_volume_are_rejected() {
        let check = |path: &str, expected: &str| {
            let line = clean(path).unwrap_or_else(|error| error.to_string());
            assert_eq!(line, expected);
        };
        check("a", "a");
        check("a/b", "a/b");
        check("a//./b/", "a/b");
        check("a/..b", "a/..b");
        check("..", "invalid path \"..\": must not contain '..'");
        check("a/../b", "invalid path \"a/../b\": must not contain '..'");
        check(
            "..data",
            "invalid path \"..data\": must not start with '..'",
        );
        check(
            "./..data",
            "invalid path \"./..data\": must not start with '..'",
        );
        check("/etc", "invalid path \"/etc\": must be relative");
        check("", "invalid path \"\": must not be empty");
        check("./", "invalid path \"./\": must not be empty");
        check(
            "a\0b",
            "invalid path \"a\\0b\": must not contain a zero byte",
        );
        let long = "x".repeat(256);
        assert!(clean(&long).is_err());
        assert!(clean(&"x/".repeat(2049)).is_err());
    }
}
