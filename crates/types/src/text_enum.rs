//! Enums whose variants have one text each.
//!
//! The derives of `strum` do the same, with an attribute line for each variant; here a declaration
//! reads as a table of names and texts.

/// Declares an enum with the text of each variant: `ALL`, `as_str`, `from_text` and `Display`.
///
/// ```
/// windlass_types::text_enum! {
///     /// Scheme of a URL.
///     #[derive(Clone, Copy, Debug, PartialEq, Eq)]
///     pub enum Scheme {
///         /// Plain.
///         Http = "http",
///         /// TLS.
///         Https = "https",
///     }
/// }
/// assert_eq!(Scheme::ALL.map(Scheme::as_str), ["http", "https"]);
/// assert_eq!(Scheme::from_text("https"), Some(Scheme::Https));
/// assert_eq!(Scheme::from_text("ftp"), None);
/// assert_eq!(format!("{:>6}", Scheme::Http), "  http");
/// ```
#[macro_export]
macro_rules! text_enum {
    (
        $(#[$meta:meta])*
        pub enum $name:ident {
            $($(#[$variant_meta:meta])* $variant:ident = $text:literal,)+
        }
    ) => {
        $(#[$meta])*
        pub enum $name {
            $($(#[$variant_meta])* $variant,)+
        }

        impl $name {
            /// All values, in the order of their declaration.
            pub const ALL: [Self; [$($name::$variant,)+].len()] = [$(Self::$variant,)+];

            /// Returns the text.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }

            /// Returns the value with this text.
            pub fn from_text(text: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|value| value.as_str() == text)
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}
