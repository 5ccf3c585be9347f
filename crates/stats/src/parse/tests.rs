//! Real and invalid contents of the files.

use std::hint::black_box;

use super::*;

/// Every parser takes any bytes.
fn all_parsers(text: &[u8]) {
    black_box((parse_number(text), parse_limit(text)));
    black_box(parse_keyed(text, "oom_kill"));
    black_box((parse_memory_stat_v1(text), parse_memory_stat_v2(text)));
    black_box((
        parse_cpu_stat(text),
        parse_cpuacct_stat(text),
        parse_cpu_max(text),
    ));
    black_box(parse_pressure(text));
    black_box((
        parse_io_stat(text),
        parse_blkio(text),
        parse_partitions(text),
        parse_diskstats(text),
    ));
    black_box((
        parse_procs(text),
        parse_net_dev(text),
        parse_default_route(text),
    ));
    black_box((
        parse_meminfo(text),
        parse_proc_stat(text),
        parse_loadavg(text),
    ));
    black_box(parse_open_files_limit(text));
    black_box((
        parse_proc_cgroup(text, None),
        parse_proc_cgroup(text, Some("cpu")),
    ));
    black_box(whole_lines(text));
}

const MEMORY_STAT_V2: &str = "anon 1835008\nfile 4096000\nkernel 331776\nkernel_stack 49152\n\
    pagetables 118784\npercpu 0\nsock 0\nvmalloc 0\nshmem 0\nzswap 0\nzswapped 0\n\
    file_mapped 1200128\nfile_dirty 0\nfile_writeback 0\nswapcached 0\nanon_thp 0\nfile_thp 0\n\
    shmem_thp 0\ninactive_anon 1789952\nactive_anon 8192\ninactive_file 3000000\n\
    active_file 1096000\nunevictable 0\nslab_reclaimable 92344\nslab_unreclaimable 49816\n\
    slab 142160\nworkingset_refault_anon 0\npgfault 5242\npgmajfault 31\npgrefill 0\n";

const NET_DEV: &str = "Inter-|   Receive                                                |  Transmit\n \
    face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n    \
    lo: 690662646 2392470    0    0    0     0          0         0 690662646 2392470    0    0    0     0       0          0\n  \
    eth0: 1296      16    1    2    0     0          0         0      866      11    3    4    0     0       0          0\n\
    vethd3f2@if2: 5 5 0 0 0 0 0 0 5 5 0 0 0 0 0 0\n\
    docker0: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n\
    eth0:1: 7 1 0 0 0 0 0 0 8 1 0 0 0 0 0 0\n\
    broken: 1 2 3\n";

#[test]
fn numbers_and_limits_are_parsed_strictly() {
    fn check(text: &str, number: Option<u64>, limit: Option<u64>) {
        assert_eq!(parse_number(text.as_bytes()), number, "{text:?}");
        assert_eq!(parse_limit(text.as_bytes()), limit, "{text:?}");
    }
    check("4096\n", Some(4096), Some(4096));
    check("0", Some(0), Some(0));
    check("  17 \n", Some(17), Some(17));
    check("max\n", None, None);
    check(
        "9223372036854771712\n",
        Some(9_223_372_036_854_771_712),
        None,
    );
    check("18446744073709551615\n", Some(u64::MAX), None);
    check("18446744073709551616\n", None, None);
    check("-1\n", None, None);
    check("12x\n", None, None);
    check("1 2\n", None, None);
    check("+5\n", None, None);
    check("", None, None);
    check("\n", None, None);
    check("\u{661}\n", None, None);
}

#[test]
fn v1_memory_includes_children() {
    let text = b"cache 1\nrss 2\nmapped_file 3\npgfault 100\npgmajfault 7\ninactive_file 5\n\
        hierarchical_memory_limit 9223372036854771712\ntotal_cache 4096\ntotal_rss 8192\n\
        total_mapped_file 1024\ntotal_swap 512\ntotal_pgfault 975239796\n\
        total_inactive_file 2048\ntotal_active_file 1000\n";
    let expected = MemoryStat {
        rss: 8192,
        cache: 4096,
        mapped_file: 1024,
        active_file: 1000,
        inactive_file: 2048,
        kernel: None,
        swap: Some(512),
        page_faults: 100,
        major_page_faults: 7,
    };
    assert_eq!(parse_memory_stat_v1(text), expected);
}

#[test]
fn v2_memory_is_parsed() {
    let expected = MemoryStat {
        rss: 1_835_008,
        cache: 4_096_000,
        mapped_file: 1_200_128,
        active_file: 1_096_000,
        inactive_file: 3_000_000,
        kernel: Some(331_776),
        swap: None,
        page_faults: 5242,
        major_page_faults: 31,
    };
    assert_eq!(parse_memory_stat_v2(MEMORY_STAT_V2.as_bytes()), expected);
}

#[test]
fn cpu_time_is_converted_to_nanoseconds() {
    let v2 = b"usage_usec 2500000\nuser_usec 2000000\nsystem_usec 500000\ncore_sched.force_idle_usec 0\n\
        nr_periods 40\nnr_throttled 7\nthrottled_usec 350000\nnr_bursts 0\nburst_usec 0\n";
    let expected = CpuStat {
        total_ns: Some(2_500_000_000),
        user_ns: 2_000_000_000,
        system_ns: 500_000_000,
        periods: 40,
        throttled_periods: 7,
        throttled_ns: 350_000_000,
    };
    assert_eq!(parse_cpu_stat(v2), expected);
    let v1 =
        b"nr_periods 40\nnr_throttled 7\nthrottled_time 350000000\nnr_bursts 0\nburst_time 0\n";
    let expected = CpuStat {
        total_ns: None,
        user_ns: 0,
        system_ns: 0,
        ..expected
    };
    assert_eq!(parse_cpu_stat(v1), expected);
    let modes = parse_cpuacct_stat(b"user 125\nsystem 25\n");
    assert_eq!(modes, (1_250_000_000, 250_000_000));
    assert_eq!(
        parse_cpu_max(b"50000 100000\n"),
        (Some(50_000), Some(100_000))
    );
    assert_eq!(parse_cpu_max(b"max 100000\n"), (None, Some(100_000)));
    assert_eq!(parse_cpu_max(b""), (None, None));
    let shares = [0, 1, 39, 100, 10_000, 10_001].map(shares_of_weight);
    let expected = [None, Some(2), Some(998), Some(2597), Some(262_144), None];
    assert_eq!(shares, expected);
}

#[test]
fn psi_is_parsed_and_invalid_content_skipped() {
    let text = b"some avg10=34.01 avg60=43.91 avg300=44.80 total=7769498\n\
        full avg10=1.00 avg60=2.00 avg300=3.00 total=5\n";
    let expected = Pressure {
        some: PressureLine {
            avg10: 34.01,
            avg60: 43.91,
            avg300: 44.8,
            total_ns: 7_769_498_000,
        },
        full: PressureLine {
            avg10: 1.0,
            avg60: 2.0,
            avg300: 3.0,
            total_ns: 5000,
        },
    };
    assert_eq!(parse_pressure(text), Some(expected));
    let only_some = parse_pressure(b"some avg10=0.00 avg60=0.00 avg300=0.00 total=9\n");
    assert_eq!(
        only_some.map(|p| (p.some.total_ns, p.full.total_ns)),
        Some((9000, 0))
    );
    let odd = parse_pressure(b"some avg10=NaN avg60=inf avg300=-4 total=99999999999999999999\n");
    assert_eq!(odd, Some(Pressure::default()));
    assert_eq!(parse_pressure(b""), None);
    assert_eq!(parse_pressure(b"full avg10=1.00 total=1\n"), None);
}

#[test]
fn block_io_is_parsed_by_device() {
    let v2 = b"254:0 rbytes=1282048 wbytes=2195456 rios=124 wios=104 dbytes=0 dios=0\n7:0\n\
        x:1 rbytes=1\n8:16 rbytes=3 cost.usage=7 wbytes=nonsense\n";
    let io = parse_io_stat(v2);
    let disk = BlockIo {
        read_bytes: 1_282_048,
        written_bytes: 2_195_456,
        reads: 124,
        writes: 104,
    };
    assert_eq!(io.get(&(254, 0)), Some(&disk));
    assert_eq!(
        io.get(&(8, 16)).map(|io| (io.read_bytes, io.written_bytes)),
        Some((3, 0))
    );
    assert_eq!(io.len(), 3);
    let v1 = b"8:0 Read 1282048\n8:0 Write 2195456\n8:0 Sync 1\n8:0 Total 3477504\nTotal 3477504\n";
    assert_eq!(parse_blkio(v1), [((8, 0), (1_282_048, 2_195_456))].into());
    let names = parse_partitions(
        b"major minor  #blocks  name\n\n 254        0  268435456 vda\n 254        1  1 vda1\n",
    );
    let expected = [
        ((254, 0), "/dev/vda".to_owned()),
        ((254, 1), "/dev/vda1".to_owned()),
    ];
    assert_eq!(names, expected.into());
}

#[test]
fn diskstats_with_fewer_columns_are_parsed() {
    let text = b"   8       0 sda 1 2 3 4 5 6 7 8 9 10 11\n 254       1 vda1 10 20 30 40 50 60 70 80 90 100 \
        110 12 13 14 15 16 17\n   8       1 sda1 1 2 3 4\n   8       2 sda2 1 2 3 4 5 6 7 8 9 x 11\n\n";
    let disk = |times: u64| DiskUsage {
        reads: times,
        reads_merged: 2 * times,
        sectors_read: 3 * times,
        read_ms: 4 * times,
        writes: 5 * times,
        writes_merged: 6 * times,
        sectors_written: 7 * times,
        write_ms: 8 * times,
        in_progress: 9 * times,
        io_ms: 10 * times,
        weighted_io_ms: 11 * times,
    };
    let expected = [
        ("/dev/sda".to_owned(), disk(1)),
        ("/dev/vda1".to_owned(), disk(10)),
    ];
    assert_eq!(parse_diskstats(text), expected.into());
}

#[test]
fn interfaces_are_filtered_as_upstream() {
    let interfaces = parse_net_dev(NET_DEV.as_bytes());
    let names: Vec<&str> = interfaces.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["eth0", "eth0:1"]);
    let received = Traffic {
        bytes: 1296,
        packets: 16,
        errors: 1,
        dropped: 2,
    };
    let sent = Traffic {
        bytes: 866,
        packets: 11,
        errors: 3,
        dropped: 4,
    };
    assert_eq!(
        (interfaces[0].received, interfaces[0].sent),
        (received, sent)
    );
}

#[test]
fn default_route_with_lowest_metric_is_used() {
    let head =
        "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n";
    let check = |routes: &str, expected: Option<&str>| {
        let text = format!("{head}{routes}");
        assert_eq!(parse_default_route(text.as_bytes()).as_deref(), expected);
    };
    check(
        "eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n",
        Some("eth0"),
    );
    check(
        "wlan0\t00000000\t010200C0\t0003\t0\t0\t600\t00000000\t0\t0\t0\n\
         ens3\t00000000\t010200C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n",
        Some("ens3"),
    );
    check(
        "eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n",
        None,
    );
    check("", None);
}

#[test]
fn host_stats_are_parsed_from_proc() {
    let info = parse_meminfo(
        b"MemTotal:       24636968 kB\nMemFree:          100 kB\n\
        MemAvailable:   2000 kB\nSwapTotal:  10 kB\nSwapFree:  4 kB\nHugePages_Total:       0\n",
    );
    assert_eq!(info.total, 24_636_968 << 10);
    assert_eq!((info.free, info.available), (100 << 10, 2000 << 10));
    assert_eq!((info.swap_total, info.swap_free), (10 << 10, 4 << 10));
    let stat =
        parse_proc_stat(b"cpu  100 10 50 9999 3 1 2 0 0 0\ncpu0 1 1 1 1\nbtime 1700000000\n");
    assert_eq!(stat.boot_time, Some(1_700_000_000));
    assert_eq!((stat.user_ns, stat.system_ns), (1_100_000_000, 530_000_000));
    assert_eq!(parse_loadavg(b"3.03 3.13 2.65 3/110 5042\n"), Some(110));
    assert_eq!(parse_loadavg(b"3.03 3.13 2.65 3 5042\n"), None);
    assert_eq!(parse_procs(b"12\n0\n7\nx\n99999999999\n"), [12, 0, 7]);
    let limits = b"Limit                     Soft Limit           Hard Limit           Units\n\
        Max open files            1024                 1048576              files\n";
    assert_eq!(parse_open_files_limit(limits), Some(1024));
    let unlimited = b"Max open files            unlimited            unlimited            files\n";
    assert_eq!(parse_open_files_limit(unlimited), None);
}

#[test]
fn process_cgroup_is_parsed_by_controller() {
    let v1 = b"9:name=systemd:/s\n4:memory:/a\n2:cpuacct,cpu:/b:c\n0::/u\n";
    let check = |controller, expected: Option<&str>| {
        assert_eq!(parse_proc_cgroup(v1, controller).as_deref(), expected);
    };
    check(Some("memory"), Some("/a"));
    check(Some("cpu"), Some("/b:c"));
    check(Some("cpuacct"), Some("/b:c"));
    check(Some("pids"), None);
    check(None, Some("/u"));
    assert_eq!(parse_proc_cgroup(b"0::relative\n", None), None);
}

#[test]
fn truncated_content_ends_after_whole_line() {
    let cut = whole_lines(b"anon 1835008\nfile 40960");
    assert_eq!(cut, b"anon 1835008\n");
    assert_eq!(whole_lines(b"no end"), b"");
}

#[test]
fn parsers_accept_any_input() {
    let texts: [&[u8]; 8] = [
        b"",
        b"\n\n\n",
        b":::\n===\n  \n",
        b"\xff\xfe\x00 1\n\xff: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n",
        b"usage_usec 18446744073709551615\nuser 18446744073709551615\nMemTotal: 18446744073709551615\n",
        b"some avg10= total=\nfull\n1:2 rbytes=\n1:2 Read\ncpu\nbtime\n",
        b"4294967296:0 Read 5\n0:4294967296 rbytes=5\n 4294967296 0 1 x\n",
        b"cpu 18446744073709551615 18446744073709551615 1 1 1 18446744073709551615 9\n",
    ];
    for text in texts {
        all_parsers(text);
    }
    for text in [MEMORY_STAT_V2, NET_DEV] {
        for end in 0..text.len() {
            all_parsers(&text.as_bytes()[..end]);
        }
    }
}
