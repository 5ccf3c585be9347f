//! Families of pod starts and image pulls.

use crate::NO_LABELS;

families! {
    /// Families of pod starts and image pulls. Clones share them.
    StartMetrics

    total: histograms("kubelet_pod_start_total_duration_seconds",
        "Duration in seconds from pod creation to all containers observed as started in the API server, including image pulls and init containers.",
        start_buckets(), &NO_LABELS);
    sli: histograms("kubelet_pod_start_sli_duration_seconds",
        "Duration in seconds from pod creation to all containers observed as started in the API server, without image pulls and init containers.",
        start_buckets(), &NO_LABELS);
    first_network: gauge("kubelet_first_network_pod_start_sli_duration_seconds",
        "Duration in seconds of the start of the first pod with a pod network, without image pulls and init containers.");
    pulls: histograms("kubelet_image_pull_duration_seconds",
        "Duration in seconds of image pulls, including waiting time, by image size.",
        vec![
            1.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0, 600.0,
            900.0, 1200.0, 1800.0, 2700.0, 3600.0,
        ], &["image_size_in_bytes"]);
    image_checks: counters("kubelet_imagemanager_image_mustpull_checks_total",
        "Number of checks whether a pod must pull a present image, by result.",
        &["result"]);
    images_collected: counters("kubelet_image_garbage_collected_total",
        "Number of images removed by image garbage collection, by reason: age or space.",
        &["reason"]);
    pull_intents: gauge("kubelet_imagemanager_ondisk_pullintents",
        "Number of image pull intents on disk: pulls in progress or with unknown result.");
    pulled_records: gauge("kubelet_imagemanager_ondisk_pulledrecords",
        "Number of image pulled records on disk.");
}

/// Upper bounds of image sizes in MiB and their upstream labels.
const SIZES: [(u64, &str); 11] = [
    (10, "0-10MB"),
    (100, "10MB-100MB"),
    (500, "100MB-500MB"),
    (1 << 10, "500MB-1GB"),
    (5 << 10, "1GB-5GB"),
    (10 << 10, "5GB-10GB"),
    (20 << 10, "10GB-20GB"),
    (30 << 10, "20GB-30GB"),
    (40 << 10, "30GB-40GB"),
    (60 << 10, "40GB-60GB"),
    (100 << 10, "60GB-100GB"),
];

impl StartMetrics {
    /// Counts an image that was removed for its `age` or for `space`.
    pub fn count_collected_image(&self, reason: &str) {
        self.images_collected.with_label_values(&[reason]).inc();
    }

    /// Records the time from pod creation to start.
    pub fn observe_start(&self, seconds: f64) {
        self.total.with_label_values(&NO_LABELS).observe(seconds);
    }

    /// Records a start duration of the SLI; `network` if the pod has a pod network.
    pub fn observe_sli(&self, seconds: f64, network: bool) {
        self.sli.with_label_values(&NO_LABELS).observe(seconds);
        if network && self.first_network.get() == 0.0 {
            self.first_network.set(seconds);
        }
    }

    /// Records an image pull.
    pub fn observe_pull(&self, bytes: u64, seconds: f64) {
        let series = self.pulls.with_label_values(&[size(bytes)]);
        series.observe(seconds);
    }

    /// Counts a check whether a pod may use a present image.
    pub fn count_image_check(&self, result: &str) {
        self.image_checks.with_label_values(&[result]).inc();
    }

    /// Sets the number of image pull intents and image pulled records on disk.
    pub fn set_pull_files(&self, intents: usize, records: usize) {
        self.pull_intents.set(intents as f64);
        self.pulled_records.set(records as f64);
    }
}

fn start_buckets() -> Vec<f64> {
    vec![
        0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 20.0, 30.0, 45.0, 60.0, 120.0, 180.0, 240.0,
        300.0, 360.0, 480.0, 600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0,
    ]
}

fn size(bytes: u64) -> &'static str {
    if bytes == 0 {
        return "N/A";
    }
    let below = SIZES.iter().find(|(mib, _)| bytes <= mib << 20);
    below.map_or("GT100GB", |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::size;
    use crate::Metrics;

    #[test]
    fn image_sizes_have_upstream_labels() {
        for (bytes, expected) in [
            (0, "N/A"),
            (1, "0-10MB"),
            (10 << 20, "0-10MB"),
            ((10 << 20) + 1, "10MB-100MB"),
            ((1 << 30) + 1, "1GB-5GB"),
            (100 << 30, "60GB-100GB"),
            ((100 << 30) + 1, "GT100GB"),
            (u64::MAX, "GT100GB"),
        ] {
            assert_eq!(size(bytes), expected, "{bytes}");
        }
    }

    #[test]
    fn first_network_pod_start_is_set_once() {
        let metrics = Metrics::new().expect("metrics");
        let shown = |line: &str| metrics.render().expect("text").contains(line);
        assert!(!shown("kubelet_pod_start_sli_duration_seconds_count"));
        metrics.starts.observe_start(9.0);
        metrics.starts.observe_sli(1.5, false);
        metrics.starts.observe_sli(2.5, true);
        metrics.starts.observe_sli(3.5, true);
        metrics.starts.observe_pull(2 << 30, 4.0);
        metrics.starts.set_pull_files(1, 2);
        metrics.starts.count_image_check("mustAuthenticate");
        for line in [
            "\nkubelet_pod_start_total_duration_seconds_sum 9\n",
            "\nkubelet_pod_start_sli_duration_seconds_count 3\n",
            "\nkubelet_first_network_pod_start_sli_duration_seconds 2.5\n",
            "\nkubelet_image_pull_duration_seconds_count{image_size_in_bytes=\"1GB-5GB\"} 1\n",
            "\nkubelet_imagemanager_ondisk_pullintents 1\n",
            "\nkubelet_imagemanager_ondisk_pulledrecords 2\n",
            "\nkubelet_imagemanager_image_mustpull_checks_total{result=\"mustAuthenticate\"} 1\n",
        ] {
            assert!(shown(line), "{line}");
        }
    }
}
