//! CPU and memory of a container as numbers.

use std::fmt;

/// Requests and limits of a container: all that an in-place resize changes. 0 is unset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContainerSizes {
    /// CPU request in thousandths.
    pub cpu_request: i64,
    /// CPU limit in thousandths.
    pub cpu_limit: i64,
    /// Memory request in bytes.
    pub memory_request: i64,
    /// Memory limit in bytes.
    pub memory_limit: i64,
}

impl fmt::Display for ContainerSizes {
    /// `cpu=100/200 memory=1048576/2097152`: request and limit.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cpu={}/{} memory={}/{}",
            self.cpu_request, self.cpu_limit, self.memory_request, self.memory_limit
        )
    }
}

impl ContainerSizes {
    /// Reads what `Display` wrote.
    pub fn parse(text: &str) -> Option<Self> {
        let pair = |word: &str, prefix| {
            let (request, limit) = word.strip_prefix(prefix)?.split_once('/')?;
            Some((request.parse().ok()?, limit.parse().ok()?))
        };
        let (cpu, memory) = text.split_once(' ')?;
        let (cpu_request, cpu_limit) = pair(cpu, "cpu=")?;
        let (memory_request, memory_limit) = pair(memory, "memory=")?;
        Some(Self {
            cpu_request,
            cpu_limit,
            memory_request,
            memory_limit,
        })
    }
}

#[cfg(test)]
mod tests {
    //! The text is read back.

    use super::ContainerSizes;

    #[test]
    fn sizes_are_read_back_and_bad_text_is_an_error() {
        let sizes = ContainerSizes {
            cpu_request: 100,
            cpu_limit: 0,
            memory_request: 1 << 20,
            memory_limit: 1 << 21,
        };
        assert_eq!(sizes.to_string(), "cpu=100/0 memory=1048576/2097152");
        assert_eq!(ContainerSizes::parse(&sizes.to_string()), Some(sizes));
        for bad in [
            "",
            "cpu=1 memory=1/2",
            "memory=1/2 cpu=1/2",
            "cpu=1/2 memory=3/4 x",
        ] {
            assert_eq!(ContainerSizes::parse(bad), None, "{bad}");
        }
    }
}
