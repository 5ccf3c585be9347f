//! The corpus, given to every target.

use std::collections::BTreeSet;
use std::path::Path;

use super::TARGETS;

/// Below `fuzz/` of the workspace.
fn corpus() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus")
}

fn names(directory: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(directory).expect("a directory of the corpus");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    names.map(|it| it.into_string().expect("UTF-8")).collect()
}

#[test]
fn every_case_of_the_corpus_passes_its_target() {
    for (name, target) in TARGETS {
        let directory = corpus().join(name);
        for case in names(&directory) {
            let bytes = std::fs::read(directory.join(&case)).expect("a case");
            // named if it fails: a panic in the target shows what was printed
            println!("{name}/{case}");
            target(&bytes);
            // and what is left when it is cut off anywhere
            for end in 0..bytes.len().min(512) {
                target(&bytes[..end]);
            }
        }
    }
}

#[test]
fn every_target_has_a_corpus_and_every_corpus_a_target() {
    let targets: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(names(&corpus()), targets);
    for target in targets {
        assert!(names(&corpus().join(&target)).len() >= 3, "{target}");
    }
}
