//! Enums whose variants have one word each, for the lines of a plan.

/// Declares an enum with `ALL`, `Display` and `FromStr`.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($variants:tt)* }) => {
        windlass_types::text_enum! {
            $(#[$meta])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
            pub enum $name { $($variants)* }
        }

        impl std::str::FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                let found = Self::from_text(text);
                found.ok_or_else(|| format!("{text:?} is not a {}", stringify!($name)))
            }
        }
    };
}

pub(crate) use words;
