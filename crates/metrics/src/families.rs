//! Declares a set of families once: its struct, its documentation and its registration.

/// Declares a set: `field: kind(name, HELP, arguments of the method of Registrar);` for each family.
macro_rules! families {
    ($(#[$meta:meta])* $set:ident $($vis:vis $field:ident: $kind:ident($name:literal, $help:literal $(, $argument:expr)*);)+) => {
        $(#[$meta])*
        #[derive(Clone, Debug)]
        pub struct $set {
            $(#[doc = concat!("`", $name, "`: ", $help)] $vis $field: families!(@type $kind),)+
        }

        impl $set {
            /// Creates and registers the families.
            ///
            /// # Errors
            /// A family of the same name is registered.
            pub fn new(registrar: &$crate::Registrar<'_>) -> Result<Self, prometheus::Error> {
                Ok(Self { $($field: registrar.$kind($name, $help $(, $argument)*)?,)+ })
            }
        }
    };
    (@type counter) => { prometheus::Counter };
    (@type counters) => { prometheus::CounterVec };
    (@type gauge) => { prometheus::Gauge };
    (@type gauges) => { prometheus::GaugeVec };
    (@type histogram) => { prometheus::Histogram };
    (@type histograms) => { prometheus::HistogramVec };
}
