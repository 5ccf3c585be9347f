//! NFS volumes with a `mount` of the test: this kernel has no NFS.

use std::fs;
use std::time::Duration;

use super::bed::{Asked, Bed, nfs};

const PLACE: &str = "pods/1/volumes/kubernetes.io~nfs/share";
/// Writes its arguments down and mounts memory instead.
const MOUNT: &str = r#"printf '%s\n' "$@" >"$0.log"
for last; do :; done
exec /bin/mount -t tmpfs tmpfs "$last""#;
const UMOUNT: &str = r#"echo "$@" >>"$0.log"
exec /bin/umount "$@""#;

fn bed() -> Option<Bed> {
    let mut bed = Bed::new()?;
    bed.replace_program("mount", MOUNT);
    bed.replace_program("umount", UMOUNT);
    Some(bed)
}

fn log(bed: &Bed, program: &str) -> String {
    fs::read_to_string(bed.at(&format!("programs/{program}.log"))).unwrap_or_default()
}

#[tokio::test]
async fn mount_is_asked_once_with_exactly_what_the_volume_says() {
    let Some(bed) = bed() else { return };
    let agent = bed.agent();
    let check = async |asked: Asked, expected: &[&str]| {
        let path = asked.set_up(&agent).await.expect("set up");
        fs::remove_file(bed.at("programs/mount.log")).expect("asked");
        asked.set_up(&bed.agent()).await.expect("again");
        assert_eq!(log(&bed, "mount"), "", "it is mounted");
        asked.release(&agent).await.expect("release");
        assert!(!path.exists());
        asked.set_up(&agent).await.expect("set up");
        let arguments = log(&bed, "mount");
        let place = path.display().to_string();
        let expected = [expected, &[place.as_str()]].concat();
        assert_eq!(arguments.lines().collect::<Vec<_>>(), expected);
        asked.release(&agent).await.expect("release");
    };
    check(
        Asked::new("1", nfs("server.local", "/export/$(id) a")),
        &["-t", "nfs", "server.local:/export/$(id) a"],
    )
    .await;
    check(
        Asked::new("1", nfs("fd00::1", "/e"))
            .options(&["vers=4.1", "hard"])
            .read_only(),
        &["-t", "nfs", "-o", "hard,ro,vers=4.1", "[fd00::1]:/e"],
    )
    .await;
    assert!(bed.mounts().is_empty());
}

#[tokio::test]
async fn a_server_that_mount_would_take_for_an_option_is_refused() {
    let Some(bed) = bed() else { return };
    for server in ["--fstab=/var/lib/kubelet/x", "-o", "--bind"] {
        let asked = Asked::new("1", nfs(server, "/e"));
        let error = asked.set_up(&bed.agent()).await.expect_err("refused");
        assert_eq!(
            bed.text(&error),
            format!("volume \"data\": \"{server}:/e\" is not an export of a server")
        );
    }
    assert_eq!(log(&bed, "mount"), "", "mount was asked");
    assert!(!bed.at(PLACE).exists());
}

#[tokio::test]
async fn what_mount_says_is_told_in_upstreams_words() {
    let Some(mut bed) = bed() else { return };
    bed.replace_program("mount", "echo 'mount.nfs: access denied' >&2; exit 32");
    let asked = Asked::new("1", nfs("server", "/e")).options(&["hard"]);
    let error = asked.set_up(&bed.agent()).await.expect_err("denied");
    assert_eq!(
        bed.text(&error),
        format!(
            "mount failed: exit status 32\nMounting command: mount\nMounting arguments: -t nfs -o hard server:/e $/{PLACE}\nOutput: mount.nfs: access denied\n"
        )
    );
    assert!(!bed.at(PLACE).exists());
}

#[tokio::test]
async fn a_mount_that_hangs_ends_at_its_deadline_and_the_next_try_is_free() {
    let Some(mut bed) = bed() else { return };
    bed.replace_program("mount", "echo $$ >\"$0.log\"; exec sleep 1000");
    bed.programs.mount_deadline = Duration::from_secs(1);
    let asked = Asked::new("1", nfs("dead", "/e"));
    let agent = bed.agent();
    let error = asked.set_up(&agent).await.expect_err("hung");
    let text = bed.text(&error);
    let expected =
        "mount failed: mount did not end within 1 s and was killed\nMounting command: mount\n";
    assert!(text.starts_with(expected), "{text}");
    // gone, or waiting for its parent to look
    let stat = format!("/proc/{}/stat", log(&bed, "mount").trim());
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
        assert!(tokio::time::Instant::now() < deadline, "killed");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    bed.replace_program("mount", MOUNT);
    asked.set_up(&agent).await.expect("the server is back");
    asked.release(&agent).await.expect("release");
}

#[tokio::test]
async fn an_unmount_that_hangs_is_tried_with_force_and_only_then_fails() {
    let Some(mut bed) = bed() else { return };
    bed.programs.unmount_deadline = Duration::from_secs(1);
    let asked = Asked::new("1", nfs("dying", "/e"));
    asked.set_up(&bed.agent()).await.expect("set up");
    let hangs_unless_forced = "echo \"$@\" >>\"$0.log\"; [ \"$1\" = -f ] || exec sleep 1000; echo 'target is busy' >&2; exit 32";
    bed.replace_program("umount", hangs_unless_forced);
    let error = asked.release(&bed.agent()).await.expect_err("busy");
    assert_eq!(
        bed.text(&error),
        format!(
            "unmount failed: exit status 32\nUnmounting arguments: $/{PLACE}\nOutput: target is busy\n"
        )
    );
    let place = bed.at(PLACE).display().to_string();
    assert_eq!(log(&bed, "umount"), format!("{place}\n-f {place}\n"));
    assert_eq!(bed.mounts(), [PLACE]);
    bed.replace_program("umount", UMOUNT);
    asked.release(&bed.agent()).await.expect("release");
    assert!(bed.mounts().is_empty());
}

#[tokio::test]
async fn what_lies_in_the_place_of_a_mount_is_never_removed() {
    let Some(bed) = bed() else { return };
    let asked = Asked::new("1", nfs("server", "/e"));
    let agent = bed.agent();
    fs::create_dir_all(bed.at(PLACE)).expect("dirs");
    fs::write(bed.at(PLACE).join("precious"), "x").expect("write");
    let error = asked.release(&agent).await.expect_err("not empty");
    assert!(bed.text(&error).contains("Directory not empty"), "{error}");
    assert!(bed.at(PLACE).join("precious").exists());
}
