//! Kernel images. Binary ones stay unread: whatever name is asked for is there. PTX is text, and says which
//! kernels and variables it has.

use std::collections::HashMap;
use std::ffi::{CStr, c_void};

use weir_abi::types::*;

use crate::edge::Answer;

const ELF: u32 = u32::from_le_bytes(*b"\x7fELF");
const FAT_BINARY: u32 = 0xba55_ed50;
const FAT_BINARY_WRAPPER: u32 = 0x4662_43b1;

/// What an image is known to hold.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// The names of its kernels; `None` for a binary, which has any.
    pub kernels: Option<Vec<String>>,
    /// Its variables in device memory, with their sizes in bytes.
    pub variables: HashMap<String, usize>,
}

impl Image {
    /// Looks at an image in memory.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for null, `CUDA_ERROR_INVALID_IMAGE` for what is neither binary nor PTX.
    pub fn at(image: *const c_void) -> Answer<Image> {
        let magic = crate::edge::get(image.cast::<[u8; 4]>())?;
        if [ELF, FAT_BINARY, FAT_BINARY_WRAPPER].contains(&u32::from_le_bytes(magic)) {
            return Ok(Image::default());
        }
        if !magic.iter().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace()) {
            return Err(CUDA_ERROR_INVALID_IMAGE);
        }
        // SAFETY: not null, and text: the driver API asks that PTX ends with a NUL.
        let text = unsafe { CStr::from_ptr(image.cast()) };
        Self::from_ptx(&text.to_string_lossy())
    }

    /// Reads PTX as far as its entries and variables.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_IMAGE` when it lacks the `.version` that PTX must begin with.
    pub fn from_ptx(text: &str) -> Answer<Image> {
        if !text.contains(".version") {
            return Err(CUDA_ERROR_INVALID_IMAGE);
        }
        let lines = text.lines().map(|line| line.split("//").next().unwrap_or(""));
        let mut image = Image { kernels: Some(Vec::new()), variables: HashMap::new() };
        for line in lines {
            if let Some((_, rest)) = line.split_once(".entry ") {
                image.kernels.get_or_insert_default().extend(name_of(rest).map(str::to_owned));
            } else if line.contains(".global ") || line.contains(".const ") {
                image.variables.extend(variable(line));
            }
        }
        Ok(image)
    }

    /// Whether it has, or may have, a kernel of this name.
    pub fn has_kernel(&self, name: &str) -> bool {
        self.kernels.as_ref().is_none_or(|kernels| kernels.iter().any(|kernel| kernel == name))
    }
}

/// The identifier that the text begins with.
fn name_of(text: &str) -> Option<&str> {
    let text = text.trim_start();
    let end = text.find(|c: char| !(c.is_alphanumeric() || "_$%".contains(c))).unwrap_or(text.len());
    (end > 0).then(|| &text[..end])
}

/// `.visible .global .align 4 .b8 table[1024];`: name and bytes.
fn variable(line: &str) -> Option<(String, usize)> {
    let words: Vec<&str> = line.split(['=', ';', '{']).next()?.split_whitespace().collect();
    let declarator = words.last().filter(|word| !word.starts_with('.'))?;
    let bits: usize = words.iter().rev().find_map(|word| {
        let kind = word.strip_prefix('.')?;
        kind.strip_prefix(['b', 'u', 's', 'f'])?.parse().ok()
    })?;
    let name = name_of(declarator)?;
    let count = declarator.split(['[', ']']).nth(1).and_then(|count| count.parse().ok()).unwrap_or(1_usize);
    Some((name.to_owned(), count.checked_mul(bits / 8)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ptx_tells_its_kernels_and_variables() {
        let image = Image::from_ptx(
            ".version 8.0\n.target sm_80\n.global .align 4 .b8 table[1024];\n.const .f32 factor = 0f3F800000;\n\
             .visible .entry saxpy(\n.entry _Z3addv() { } // .entry none",
        )
        .expect("PTX");
        assert_eq!(image.kernels, Some(vec!["saxpy".to_owned(), "_Z3addv".to_owned()]));
        assert_eq!(image.variables, HashMap::from([("table".to_owned(), 1024), ("factor".to_owned(), 4)]));
        assert!(image.has_kernel("saxpy") && !image.has_kernel("none"));
    }

    #[test]
    fn a_binary_may_hold_any_kernel_and_garbage_none() {
        assert!(Image::at(c"\x7fELF".as_ptr().cast()).expect("ELF").has_kernel("any"));
        assert_eq!(Image::at(c"\x01\x02\x03\x04".as_ptr().cast()), Err(CUDA_ERROR_INVALID_IMAGE));
        assert_eq!(Image::from_ptx("no header"), Err(CUDA_ERROR_INVALID_IMAGE));
    }
}
