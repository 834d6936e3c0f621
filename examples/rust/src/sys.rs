//! moecomm.h as bindgen sees it. The header is the manual of every function.
#![allow(non_camel_case_types, non_upper_case_globals, non_snake_case, dead_code)]

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));

/// A struct argument as its INITIALIZER in C makes it: its size, and zeros. (bindgen leaves such macros out.) Of
/// `moeConfig_t` the initializer also sets `device` to -1.
macro_rules! initialized {
    ($name:ident { $($field:ident: $value:expr),* $(,)? }) => {
        crate::sys::$name {
            size: std::mem::size_of::<crate::sys::$name>() as _,
            $($field: $value,)*
            ..Default::default()
        }
    };
}
pub(crate) use initialized;
