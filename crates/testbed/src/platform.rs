//! Platforms that images and programs are built for, with the names that Rust, Debian, GNU and OCI give them.

use std::fmt;
use std::str::FromStr;

use anyhow::bail;

use crate::debian::Package;

/// Linux on one processor architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Platform {
    /// x86-64.
    Amd64,
    /// 64-bit ARM.
    Arm64,
}

/// The compiler, C library and emulator for [`Platform::Arm64`] on another architecture.
const ARM64_CROSS: &[Package] = &[
    Package {
        name: "gcc-aarch64-linux-gnu",
        probe: &["/usr/bin/aarch64-linux-gnu-gcc"],
    },
    Package {
        name: "libc6-dev-arm64-cross",
        probe: &["/usr/aarch64-linux-gnu/lib/libc.a"],
    },
    Package {
        name: "qemu-user-static",
        probe: &["/usr/bin/qemu-aarch64-static"],
    },
];

impl Platform {
    /// Every platform.
    pub const ALL: [Self; 2] = [Self::Amd64, Self::Arm64];

    /// Returns the platform that this program was built for.
    ///
    /// # Errors
    /// Images are not built for it.
    pub fn host() -> anyhow::Result<Self> {
        let host = std::env::consts::ARCH;
        match Self::ALL.iter().find(|it| it.rust_arch() == host) {
            Some(platform) => Ok(*platform),
            None => bail!("images are not built on {host}, only on x86_64 and aarch64"),
        }
    }

    /// Returns whether this program runs on the platform.
    pub(crate) fn is_host(self) -> bool {
        self.rust_arch() == std::env::consts::ARCH
    }

    /// Returns Rust's name of the architecture, which GNU and the kernel share.
    fn rust_arch(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64",
            Self::Arm64 => "aarch64",
        }
    }

    /// Returns Rust's target triple.
    pub fn rust_target(self) -> String {
        format!("{}-unknown-linux-gnu", self.rust_arch())
    }

    /// Returns the directory of Debian's libraries, which also prefixes the programs of the cross-compiler.
    pub fn gnu_triple(self) -> String {
        format!("{}-linux-gnu", self.rust_arch())
    }

    /// Returns the architecture in OCI documents, which is Debian's name too.
    pub fn architecture(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// Returns the variant in OCI documents.
    pub fn variant(self) -> Option<&'static str> {
        match self {
            Self::Amd64 => None,
            Self::Arm64 => Some("v8"),
        }
    }

    /// Returns the C compiler for the platform.
    pub fn c_compiler(self) -> String {
        if self.is_host() {
            "cc".to_owned()
        } else {
            format!("{}-gcc", self.gnu_triple())
        }
    }

    /// Returns the program that runs a statically linked program of the platform on this host, if one is needed.
    pub fn emulator(self) -> Option<String> {
        (!self.is_host()).then(|| format!("qemu-{}-static", self.rust_arch()))
    }

    /// Returns Debian's packages that build and run programs of the platform on this host.
    ///
    /// # Errors
    /// Cross-building in this direction is not set up.
    pub fn cross_packages(self) -> anyhow::Result<&'static [Package]> {
        match (self, self.is_host()) {
            (_, true) => Ok(&[]),
            (Self::Arm64, false) => Ok(ARM64_CROSS),
            (Self::Amd64, false) => bail!(
                "cross-building for {self} is not set up on {}; run it on an {} machine",
                std::env::consts::ARCH,
                self.architecture()
            ),
        }
    }
}

/// As in `--platform`: `linux/amd64`.
impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "linux/{}", self.architecture())
    }
}

impl FromStr for Platform {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = |platform: &Self| {
            let with_variant = platform.variant().map(|it| format!("{platform}/{it}"));
            text == platform.to_string() || Some(text) == with_variant.as_deref()
        };
        match Self::ALL.into_iter().find(known) {
            Some(platform) => Ok(platform),
            None => bail!("unknown platform {text}; use linux/amd64 or linux/arm64"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn platform_names_are_parsed_with_and_without_variant() {
        for platform in Platform::ALL {
            let parsed: Platform = platform.to_string().parse().expect("its own name");
            assert_eq!(parsed, platform);
        }
        let variant: Platform = "linux/arm64/v8".parse().expect("a variant");
        assert_eq!(variant, Platform::Arm64);
        for text in ["arm64", "linux/arm", "linux/amd64/v8", "windows/amd64", ""] {
            let error = text.parse::<Platform>().expect_err(text).to_string();
            assert!(error.starts_with("unknown platform"), "{error}");
        }
    }

    #[test]
    fn platform_host_needs_no_cross_packages() {
        let host = Platform::host().expect("a known architecture");
        assert!(host.is_host());
        assert!(host.cross_packages().expect("none").is_empty());
        assert_eq!(host.emulator(), None);
        assert_eq!(host.c_compiler(), "cc");
    }
}
