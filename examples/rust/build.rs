//! Finds the installed library by pkg-config, and makes the bindings of its header by bindgen (Debian: `bindgen`,
//! otherwise `cargo install bindgen-cli`).
use std::env;
use std::path::PathBuf;
use std::process::Command;

/// What a program prints. Ends the build with a sentence if the program is missing or fails.
fn output_of(program: &str, arguments: &[&str]) -> String {
    let output =
        Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("cannot run {program}: {error}"));
    if !output.status.success() {
        panic!("{program} failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    String::from_utf8(output.stdout).expect("text in UTF-8").trim().to_string()
}

fn main() {
    let of_package = |what: &str| output_of("pkg-config", &[what, "moecomm"]);
    let include = of_package("--variable=includedir");
    let header = format!("{include}/moecomm.h");
    let bindings = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("bindings.rs");
    output_of(
        "bindgen",
        &[
            &header,
            "--allowlist-function=moe.*",
            "--allowlist-var=moe.*|MOE_.*",
            "--default-enum-style=consts",
            "--no-prepend-enum-name",
            "--with-derive-default",
            "--output",
            bindings.to_str().expect("a path in UTF-8"),
        ],
    );
    println!("cargo:rustc-link-search=native={}", of_package("--variable=libdir"));
    println!("cargo:rustc-link-lib=dylib=moecomm");
    println!("cargo:rerun-if-changed={header}");
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
}
