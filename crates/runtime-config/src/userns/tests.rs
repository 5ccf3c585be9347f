//! Ranges, allocation and files, with upstream's messages.

use super::*;

fn ids(host_id: u32) -> IdMapping {
    IdMapping {
        host_id,
        container_id: 0,
        length: ID_UNIT,
    }
}

/// `first+length/per-pod`, or the error.
fn check_range(subordinate: Option<(u32, u32)>, per_pod: u32, max_pods: u32, expected: &str) {
    let line = match IdRange::new(subordinate, per_pod, max_pods) {
        Ok(range) => format!("{}+{}/{}", range.first, range.length, range.per_pod),
        Err(error) => error.to_string(),
    };
    assert_eq!(line, expected);
}

#[test]
fn id_range_must_divide_into_pods() {
    check_range(None, ID_UNIT, 110, "65536+4294901760/65536");
    check_range(None, 2 * ID_UNIT, 110, "131072+4294836224/131072");
    check_range(
        Some((65_536, 110 * 65_536)),
        ID_UNIT,
        110,
        "65536+7208960/65536",
    );
    check_range(
        Some((65_536, 109 * 65_536)),
        ID_UNIT,
        110,
        "kubelet user assigned IDs are not enough to support 110 pods",
    );
    check_range(
        None,
        100,
        110,
        "kubelet user namespace length 100 is not a multiple of 65536",
    );
    check_range(
        Some((100_000, 65_536)),
        ID_UNIT,
        1,
        "kubelet user assigned ID 100000 is not a multiple of 65536",
    );
    check_range(
        Some((0, 65_536)),
        ID_UNIT,
        1,
        "kubelet user assigned ID 0 must be greater or equal to 65536",
    );
    check_range(
        Some((65_536, 65_537)),
        ID_UNIT,
        1,
        "kubelet user assigned IDs length 65537 is not a multiple of 65536",
    );
    assert_eq!(IdRange::new(None, ID_UNIT, 110), Ok(IdRange::default()));
}

#[test]
fn getsubids_output_has_first_and_length() {
    let check = |output: &str, expected: &str| {
        let line = parse_getsubids(output).map(|(first, length)| format!("{first}+{length}"));
        assert_eq!(line.unwrap_or_else(|e| e.to_string()), expected);
    };
    check("0: kubelet 65536 2147483648\n", "65536+2147483648");
    check(
        "0: kubelet 65536 65536\n1: kubelet 262144 65536\n",
        "error parsing line \"0: kubelet 65536 65536\\n1: kubelet 262144 65536\\n\": it must \
         contain only one line",
    );
    check("", "error parsing line \"\": it must contain only one line");
    check("kubelet 65536", "invalid line \"kubelet 65536\"");
    check(
        "0: kubelet x 1",
        "error parsing line \"0: kubelet x 1\": invalid digit found in string",
    );
}

/// The first ID a pod gets, or the error.
fn check_take(all: &mut UserNamespaces, uid: &str, expected: &str) {
    let line = all.allocate(&uid.into()).map(|given| {
        let noted = if given.persisted { " noted" } else { "" };
        format!("{}+{}{noted}", given.ids.host_id, given.ids.length)
    });
    assert_eq!(line.unwrap_or_else(|e| e.to_string()), expected, "{uid}");
}

#[test]
fn pods_have_exclusive_ids_until_removed() {
    let range = IdRange::new(Some((131_072, 3 * ID_UNIT)), ID_UNIT, 3).expect("range");
    let mut all = UserNamespaces::new(range);
    check_take(&mut all, "a", "131072+65536");
    check_take(&mut all, "b", "196608+65536");
    check_take(&mut all, "c", "262144+65536");
    all.mark_persisted(&"a".into());
    check_take(&mut all, "a", "131072+65536 noted");
    let full = "create user namespace: could not find an empty slot to allocate a user namespace";
    check_take(&mut all, "d", full);
    all.release(&"b".into());
    all.release(&"b".into());
    check_take(&mut all, "d", "196608+65536");
    check_take(&mut all, "b", full);
}

#[test]
fn last_ids_of_range_are_allocated() {
    let mut all = UserNamespaces::new(IdRange::default());
    for slot in 0..IdRange::default().slots() {
        let uid = PodUid::from(format!("pod-{slot}"));
        let given = all.allocate(&uid).expect("free");
        assert_eq!(given.ids, ids(ID_UNIT + slot as u32 * ID_UNIT));
    }
    assert_eq!(all.allocate(&"more".into()), Err(UsernsError::Exhausted));
    all.release(&"pod-65534".into());
    check_take(&mut all, "more", "4294901760+65536");
}

#[test]
fn restored_ids_are_not_allocated_again() {
    let mut all = UserNamespaces::new(IdRange::default());
    let mut restore = |uid: &str, host_id: u32, length: u32| {
        let file = mapping_file(IdMapping {
            host_id,
            container_id: 0,
            length,
        });
        let restored = all.restore(&uid.into(), &file);
        restored.map_or_else(|e| e.to_string(), |()| "ok".to_owned())
    };
    assert_eq!(restore("old", ID_UNIT, ID_UNIT), "ok");
    let taken = "user namespace: range picked for pod \"thief\" already taken";
    assert_eq!(restore("thief", ID_UNIT, ID_UNIT), taken);
    // of another configuration: it begins in the middle of a slot and ends in another
    assert_eq!(restore("odd", 3 * ID_UNIT - 5, 10), "ok");
    // outside the range: no other pod can get it
    assert_eq!(restore("low", 100, 100), "ok");
    assert!(all.restore(&"torn".into(), "{").is_err());

    check_take(&mut all, "old", "65536+65536 noted");
    check_take(&mut all, "thief", taken);
    check_take(&mut all, "new", "262144+65536");
    check_take(&mut all, "odd", "196603+10 noted");
    check_take(&mut all, "low", "100+100 noted");
    assert!(all.allocate(&"torn".into()).is_err());
    all.release(&"odd".into());
    all.release(&"torn".into());
    check_take(&mut all, "next", "131072+65536");
    check_take(&mut all, "torn", "196608+65536");
}

#[test]
fn mapping_file_has_upstream_format() {
    let text = "{\"uidMappings\":[{\"hostId\":131072,\"containerId\":0,\"length\":65536}],\
                \"gidMappings\":[{\"hostId\":131072,\"containerId\":0,\"length\":65536}]}";
    assert_eq!(mapping_file(ids(131_072)), text);
    assert_eq!(parse_mapping_file(text), Ok(ids(131_072)));
    let check = |text: &str, expected: &str| {
        let error = parse_mapping_file(text).expect_err("an error");
        assert!(error.to_string().starts_with(expected), "{error}");
    };
    let content = |what: &str| format!("invalid user namespace configuration: {what}");
    let one = "{\"hostId\":65536,\"containerId\":0,\"length\":65536}";
    let file =
        |uids: &str, gids: &str| format!("{{\"uidMappings\":[{uids}],\"gidMappings\":[{gids}]}}");
    check("{", "invalid user namespace mappings file: ");
    check(&file("", ""), &content("no more than one mapping allowed."));
    check(
        &file(&format!("{one},{one}"), one),
        &content("no more than one mapping allowed."),
    );
    let identical = content("GID and UID mapping should be identical");
    check(&file(one, ""), &identical);
    check(&file(one, &one.replace("65536,", "131072,")), &identical);
    let second = one.replace("\"containerId\":0", "\"containerId\":1");
    check(&file(&second, &second), &content("UID 0 must be mapped"));
    let root = one.replace("\"hostId\":65536", "\"hostId\":0");
    check(&file(&root, &root), &content("invalid IDs of a pod"));
}

#[test]
fn handler_without_user_namespaces_has_upstream_error() {
    let handler = |name: &str, user_namespaces| RuntimeHandler {
        name: name.to_owned(),
        user_namespaces,
        ..RuntimeHandler::default()
    };
    let handlers = [handler("", true), handler("old", false)];
    let check = |handlers: &[RuntimeHandler], name: &str, expected: &str| {
        let line = check_handler(handlers, name).map(|()| "yes".to_owned());
        assert_eq!(line.unwrap_or_else(|e| e.to_string()), expected);
    };
    check(&handlers, "", "yes");
    check(
        &handlers,
        "old",
        "can't set `spec.hostUsers: false`, RuntimeClass handler \"old\" does not support user \
         namespaces",
    );
    check(
        &handlers,
        "none",
        "can't set `spec.hostUsers: false`, RuntimeClass handler \"none\" does not support user \
         namespaces: the handler \"none\" is not known",
    );
    check(
        &[],
        "",
        "can't set `spec.hostUsers: false`, runtime does not support user namespaces",
    );
}
