//! NFS volumes with a fake `mount`, as the kernel may lack NFS.

use std::fs;
use std::time::Duration;

use super::fixture::{Fixture, VolumeSpec, nfs};

const PLACE: &str = "pods/1/volumes/kubernetes.io~nfs/share";
/// Records its arguments and mounts a tmpfs.
const MOUNT: &str = r#"printf '%s\n' "$@" >"$0.log"
for last; do :; done
exec /bin/mount -t tmpfs tmpfs "$last""#;
const UMOUNT: &str = r#"echo "$@" >>"$0.log"
exec /bin/umount "$@""#;

fn fixture() -> Option<Fixture> {
    let mut fixture = Fixture::new()?;
    fixture.replace_program("mount", MOUNT);
    fixture.replace_program("umount", UMOUNT);
    Some(fixture)
}

fn log(fixture: &Fixture, program: &str) -> String {
    fs::read_to_string(fixture.at(&format!("programs/{program}.log"))).unwrap_or_default()
}

#[tokio::test]
async fn mount_runs_once_with_the_arguments_of_the_volume() {
    let Some(fixture) = fixture() else { return };
    let agent = fixture.agent();
    let check = async |spec: VolumeSpec, expected: &[&str]| {
        let path = spec.set_up(&agent).await.expect("set up");
        fs::remove_file(fixture.at("programs/mount.log")).expect("asked");
        spec.set_up(&fixture.agent()).await.expect("again");
        assert_eq!(log(&fixture, "mount"), "", "it is mounted");
        spec.release(&agent).await.expect("release");
        assert!(!path.exists());
        spec.set_up(&agent).await.expect("set up");
        let arguments = log(&fixture, "mount");
        let place = path.display().to_string();
        let expected = [expected, &[place.as_str()]].concat();
        assert_eq!(arguments.lines().collect::<Vec<_>>(), expected);
        spec.release(&agent).await.expect("release");
    };
    check(
        VolumeSpec::new("1", nfs("server.local", "/export/$(id) a")),
        &["-t", "nfs", "server.local:/export/$(id) a"],
    )
    .await;
    check(
        VolumeSpec::new("1", nfs("fd00::1", "/e"))
            .options(&["vers=4.1", "hard"])
            .read_only(),
        &["-t", "nfs", "-o", "hard,ro,vers=4.1", "[fd00::1]:/e"],
    )
    .await;
    assert!(fixture.mounts().is_empty());
}

#[tokio::test]
async fn server_name_like_an_option_is_rejected() {
    let Some(fixture) = fixture() else { return };
    for server in ["--fstab=/var/lib/kubelet/x", "-o", "--bind"] {
        let spec = VolumeSpec::new("1", nfs(server, "/e"));
        let error = spec.set_up(&fixture.agent()).await.expect_err("refused");
        assert_eq!(
            fixture.text(&error),
            format!("volume \"data\": \"{server}:/e\" is not an NFS export")
        );
    }
    assert_eq!(log(&fixture, "mount"), "", "mount was executed");
    assert!(!fixture.at(PLACE).exists());
}

#[tokio::test]
async fn mount_error_has_upstream_text() {
    let Some(mut fixture) = fixture() else { return };
    fixture.replace_program("mount", "echo 'mount.nfs: access denied' >&2; exit 32");
    let spec = VolumeSpec::new("1", nfs("server", "/e")).options(&["hard"]);
    let error = spec.set_up(&fixture.agent()).await.expect_err("denied");
    assert_eq!(
        fixture.text(&error),
        format!(
            "mount failed: exit status 32\nMounting command: mount\nMounting arguments: -t nfs -o hard server:/e $/{PLACE}\nOutput: mount.nfs: access denied\n"
        )
    );
    assert!(!fixture.at(PLACE).exists());
}

#[tokio::test]
async fn hung_mount_times_out_and_can_be_retried() {
    let Some(mut fixture) = fixture() else { return };
    fixture.replace_program("mount", "echo $$ >\"$0.log\"; exec sleep 1000");
    fixture.programs.mount_deadline = Duration::from_secs(1);
    let spec = VolumeSpec::new("1", nfs("dead", "/e"));
    let agent = fixture.agent();
    let error = spec.set_up(&agent).await.expect_err("hung");
    let text = fixture.text(&error);
    let expected =
        "mount failed: mount did not end within 1 s and was killed\nMounting command: mount\n";
    assert!(text.starts_with(expected), "{text}");
    // gone, or a zombie
    let stat = format!("/proc/{}/stat", log(&fixture, "mount").trim());
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
        assert!(tokio::time::Instant::now() < deadline, "killed");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    fixture.replace_program("mount", MOUNT);
    spec.set_up(&agent).await.expect("the server is back");
    spec.release(&agent).await.expect("release");
}

#[tokio::test]
async fn hung_unmount_is_retried_with_force() {
    let Some(mut fixture) = fixture() else { return };
    fixture.programs.unmount_deadline = Duration::from_secs(1);
    let spec = VolumeSpec::new("1", nfs("dying", "/e"));
    spec.set_up(&fixture.agent()).await.expect("set up");
    let hangs_unless_forced = "echo \"$@\" >>\"$0.log\"; [ \"$1\" = -f ] || exec sleep 1000; echo 'target is busy' >&2; exit 32";
    fixture.replace_program("umount", hangs_unless_forced);
    let error = spec.release(&fixture.agent()).await.expect_err("busy");
    assert_eq!(
        fixture.text(&error),
        format!(
            "unmount failed: exit status 32\nUnmounting arguments: $/{PLACE}\nOutput: target is busy\n"
        )
    );
    let place = fixture.at(PLACE).display().to_string();
    assert_eq!(log(&fixture, "umount"), format!("{place}\n-f {place}\n"));
    assert_eq!(fixture.mounts(), [PLACE]);
    fixture.replace_program("umount", UMOUNT);
    spec.release(&fixture.agent()).await.expect("release");
    assert!(fixture.mounts().is_empty());
}

#[tokio::test]
async fn content_of_the_mount_directory_is_not_removed() {
    let Some(fixture) = fixture() else { return };
    let spec = VolumeSpec::new("1", nfs("server", "/e"));
    let agent = fixture.agent();
    fs::create_dir_all(fixture.at(PLACE)).expect("dirs");
    fs::write(fixture.at(PLACE).join("precious"), "x").expect("write");
    let error = spec.release(&agent).await.expect_err("not empty");
    assert!(
        fixture.text(&error).contains("Directory not empty"),
        "{error}"
    );
    assert!(fixture.at(PLACE).join("precious").exists());
}
