//! What the system of the machine shows: the script that prints it, and its comparison with the pods
//! that exist.

use std::collections::{BTreeMap, BTreeSet};

use crate::leftovers::Kind;

const PODS: &str = "/var/lib/kubelet/pods";
/// Path of an emptyDir's data below the directory of its pod.
const DATA: &str = "volumes/kubernetes.io~empty-dir/scratch";
/// Path of a key of the ConfigMap below the directory of its pod.
const PAYLOAD: &str = "volumes/kubernetes.io~configmap/settings/mode";
/// Files that are written before a cut and not flushed.
const UNSYNCED: &str = "/var/tmp/unsynced";

/// Returns the script that prints a snapshot; `live` are the UIDs of the pods that exist.
pub(crate) fn script(live: &BTreeSet<String>) -> String {
    let of_others: Vec<String> = live
        .iter()
        .map(|uid| format!("labels.\"io.kubernetes.pod.uid\"!=\"{uid}\""))
        .collect();
    format!(
        // errors of missing directories are not lines of a section
        "exec 2>/dev/null\n\
         echo @service\n\
         systemctl show windlass -p ActiveState -p NRestarts\n\
         echo @pods\n\
         ls {PODS}\n\
         echo @mounts\n\
         cut -d' ' -f5 /proc/self/mountinfo\n\
         echo @cgroups\n\
         find /sys/fs/cgroup/kubepods.slice -mindepth 1 -type d -name '*-pod*.slice'\n\
         echo @logs\n\
         ls /var/log/pods\n\
         echo @links\n\
         find /var/log/containers -xtype l\n\
         echo @state\n\
         ls -A /var/lib/kubelet/windlass\n\
         echo @data\n\
         for dir in {PODS}/*; do\n\
         test -e $dir/{DATA}/token && echo ${{dir##*/}} $(cat $dir/{DATA}/token)\n\
         done\n\
         echo @payload\n\
         for file in {PODS}/*/{PAYLOAD}; do\n\
         test -e $file && echo $file $(cat $file)\n\
         done\n\
         echo @containers\n\
         ctr -n k8s.io containers ls -q\n\
         echo @others\n\
         ctr -n k8s.io containers ls -q '{filter}'\n\
         echo @addresses\n\
         for file in /var/lib/cni/networks/pods/[0-9]*; do\n\
         test -e $file && echo ${{file##*/}} $(head -n 1 $file)\n\
         done\n\
         echo @unsynced\n\
         ls {UNSYNCED}\n\
         echo @end\n",
        filter = of_others.join(","),
    )
}

/// Removes the result files of CNI that the cut left empty, and prints their names: containerd can
/// neither stop nor remove the sandbox of such a file.
pub(crate) const REMOVE_EMPTY_RESULTS: &str =
    "find /var/lib/cni/results -type f -empty -print -delete 2>/dev/null || true\n";

/// Writes a number to the emptyDir of each of these pods and flushes it to the disk.
pub(crate) fn write_data(uids: &BTreeSet<String>, number: usize) -> String {
    let write = |uid: &String| {
        let dir = format!("{PODS}/{uid}/{DATA}");
        format!(
            "echo {number} >{dir}/token.new && sync {dir}/token.new && \
             mv {dir}/token.new {dir}/token && sync {dir} || exit 1\n"
        )
    };
    uids.iter().map(write).collect()
}

/// Writes a file without a flush, so that a cut at once loses it.
pub(crate) fn write_unsynced(number: usize) -> String {
    format!("mkdir -p {UNSYNCED}; echo {number} >{UNSYNCED}/{number}\n")
}

/// A snapshot: the lines of each section.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Snapshot(BTreeMap<String, Vec<String>>);

impl Snapshot {
    /// Reads the output of the script; `None` if it is incomplete.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut sections: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut section = String::new();
        for line in text.lines() {
            match line.strip_prefix('@') {
                Some(name) => {
                    section = name.to_owned();
                    sections.insert(section.clone(), Vec::new());
                }
                None => sections
                    .entry(section.clone())
                    .or_default()
                    .push(line.to_owned()),
            }
        }
        sections.contains_key("end").then_some(Self(sections))
    }

    fn section(&self, name: &str) -> &[String] {
        self.0.get(name).map(Vec::as_slice).unwrap_or_default()
    }

    fn property(&self, name: &str) -> Option<&str> {
        let mut lines = self.section("service").iter();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
    }

    pub(crate) fn is_agent_active(&self) -> bool {
        self.property("ActiveState") == Some("active")
    }

    /// Number of exits of the agent since the boot.
    pub(crate) fn agent_exits(&self) -> usize {
        let exits = self.property("NRestarts").and_then(|it| it.parse().ok());
        exits.unwrap_or_default()
    }

    /// State files that the agent set aside.
    pub(crate) fn damaged_files(&self) -> BTreeSet<String> {
        let names = self.section("state").iter();
        names
            .filter(|name| name.contains(".corrupt-"))
            .cloned()
            .collect()
    }

    /// Number in the emptyDir by UID.
    pub(crate) fn data(&self) -> BTreeMap<&str, usize> {
        let pairs = self.section("data").iter().filter_map(|line| {
            let (uid, number) = line.split_once(' ')?;
            Some((uid, number.parse().ok()?))
        });
        pairs.collect()
    }

    /// ConfigMap volumes whose content is not `expected`.
    pub(crate) fn other_payloads(&self, expected: &str) -> Vec<String> {
        let lines = self.section("payload").iter();
        lines
            .filter(|line| {
                line.split_once(' ')
                    .is_none_or(|(_, text)| text != expected)
            })
            .cloned()
            .collect()
    }

    /// Whether a file that was not flushed survived the cut.
    pub(crate) fn has_unsynced(&self, number: usize) -> bool {
        let name = number.to_string();
        self.section("unsynced").contains(&name)
    }

    /// What exists of pods that do not.
    pub(crate) fn leftovers(&self, live: &BTreeSet<String>) -> BTreeMap<Kind, Vec<String>> {
        let is_live = |name: &str| live.iter().any(|uid| name.contains(uid.as_str()));
        let kept = |section: &str, is_left: &dyn Fn(&str) -> bool| -> Vec<String> {
            let lines = self.section(section).iter();
            lines.filter(|line| is_left(line)).cloned().collect()
        };
        let mounts = kept("mounts", &|point| {
            point.starts_with(&format!("{PODS}/")) && !is_live(point)
        });
        let cgroups = kept("cgroups", &|path| {
            // the name of a slice has underscores
            !is_live(&path.replace('_', "-"))
        });
        let mut files = kept("pods", &|uid| !live.contains(uid));
        files.extend(kept("logs", &|name| !is_live(name)));
        files.extend(kept("links", &|_| true));
        let sandboxes = kept("others", &|_| true);
        let all = [
            (Kind::Mounts, mounts),
            (Kind::Cgroups, cgroups),
            (Kind::Files, files),
            (Kind::Sandboxes, sandboxes),
        ];
        all.into_iter()
            .filter(|(_, names)| !names.is_empty())
            .collect()
    }

    /// Addresses that CNI keeps for sandboxes that containerd does not know: the cut lost the record of
    /// a sandbox in creation. No client of the CRI can free them.
    pub(crate) fn forgotten_addresses(&self) -> BTreeSet<String> {
        let containers = self.section("containers");
        let is_forgotten = |line: &&String| {
            let sandbox = line.split_once(' ').map_or("", |(_, id)| id.trim());
            !containers.iter().any(|id| id == sandbox)
        };
        let lines = self.section("addresses").iter().filter(is_forgotten);
        lines.cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLEAN: &str = "@service\nNRestarts=0\nActiveState=active\n\
        @pods\naa-1\n\
        @mounts\n/\n/var/lib/kubelet/pods/aa-1/volumes/kubernetes.io~secret/s\n\
        @cgroups\n/sys/fs/cgroup/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podaa_1.slice\n\
        @logs\ndefault_p0-node_aa-1\n\
        @links\n\
        @state\nbackoff\nadmitted_pods\n.backoff.tmp\n\
        @data\naa-1 3\n\
        @payload\n/p/aa-1/mode calm\n\
        @containers\nc1\nc2\n\
        @others\n\
        @addresses\n10.88.0.2 c1\r\n\
        @unsynced\n4\n\
        @end\n";

    fn live() -> BTreeSet<String> {
        ["aa-1".to_owned()].into()
    }

    #[test]
    fn snapshot_without_its_end_is_incomplete() {
        assert_eq!(Snapshot::parse("@service\nActiveState=active\n"), None);
        let clean = Snapshot::parse(CLEAN).unwrap();
        assert!(clean.is_agent_active());
        assert_eq!(clean.agent_exits(), 0);
        assert_eq!(clean.data(), [("aa-1", 3)].into());
        assert!(clean.has_unsynced(4) && !clean.has_unsynced(3));
    }

    #[test]
    fn remains_of_removed_pods_are_found_in_every_section() {
        let check = |section: &str, line: &str, kind: Kind| {
            let marker = format!("@{section}\n");
            let text = CLEAN.replace(&marker, &format!("{marker}{line}\n"));
            let left = Snapshot::parse(&text).unwrap().leftovers(&live());
            assert_eq!(left, [(kind, vec![line.to_owned()])].into(), "{section}");
        };
        assert_eq!(
            Snapshot::parse(CLEAN).unwrap().leftovers(&live()),
            [].into()
        );
        check("pods", "bb-2", Kind::Files);
        check("logs", "default_p1-node_bb-2", Kind::Files);
        check("links", "/var/log/containers/x.log", Kind::Files);
        check("mounts", "/var/lib/kubelet/pods/bb-2/v", Kind::Mounts);
        check(
            "cgroups",
            "/sys/fs/cgroup/kubepods.slice/kubepods-podbb_2.slice",
            Kind::Cgroups,
        );
        check("others", "c9", Kind::Sandboxes);
    }

    #[test]
    fn address_without_a_known_sandbox_is_forgotten() {
        let check = |line: &str, expected: &[&str]| {
            let text = CLEAN.replace("@addresses\n", &format!("@addresses\n{line}\n"));
            let found = Snapshot::parse(&text).unwrap().forgotten_addresses();
            assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{line}");
        };
        check("10.88.0.3 c1", &[]);
        check("10.88.0.3 c9", &["10.88.0.3 c9"]);
        // torn by the cut
        check("10.88.0.3 ", &["10.88.0.3 "]);
    }

    #[test]
    fn torn_payload_is_found() {
        let other = |text: &str| {
            let text = CLEAN.replace("mode calm", text);
            Snapshot::parse(&text).unwrap().other_payloads("calm")
        };
        assert_eq!(other("mode calm"), Vec::<String>::new());
        assert_eq!(other("mode "), ["/p/aa-1/mode "]);
        assert_eq!(other("mode"), ["/p/aa-1/mode"]);
        assert_eq!(other("mode cal"), ["/p/aa-1/mode cal"]);
    }

    #[test]
    fn state_files_that_were_set_aside_are_damaged() {
        let text = CLEAN.replace("@state\n", "@state\nbackoff.corrupt-1\n");
        let damaged = Snapshot::parse(&text).unwrap().damaged_files();
        assert_eq!(damaged, ["backoff.corrupt-1".to_owned()].into());
        assert_eq!(
            Snapshot::parse(CLEAN).unwrap().damaged_files(),
            BTreeSet::new()
        );
    }

    #[test]
    fn filter_of_containers_excludes_every_live_pod() {
        let live = ["a".to_owned(), "b".to_owned()].into();
        let filter = "ls -q 'labels.\"io.kubernetes.pod.uid\"!=\"a\",labels.\"io.kubernetes.pod.uid\"!=\"b\"'";
        assert!(script(&live).contains(filter));
    }
}
