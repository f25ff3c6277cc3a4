//! Kernel images. Binary ones stay unread: whatever name is asked for is there. PTX is text, and says which
//! kernels and variables it has.

use std::collections::HashMap;
use std::ffi::{CStr, c_void};

use weir_abi::types::*;

use crate::edge::Answer;

const ELF: u32 = u32::from_le_bytes(*b"\x7fELF");
const FAT_BINARY: u32 = 0xba55_ed50;
const FAT_BINARY_WRAPPER: u32 = 0x4662_43b1;

/// A kernel as PTX declares it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kernel {
    /// Its name, as the linker has it.
    pub name: String,
    /// Its parameters, in order.
    pub parameters: Vec<Parameter>,
}

/// Where a kernel's parameter lies, in bytes from the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Where it begins.
    pub offset: usize,
    /// How long it is.
    pub bytes: usize,
}

/// What an image is known to hold.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// The names of its kernels; `None` for a binary, which has any.
    pub kernels: Option<Vec<Kernel>>,
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
        let bare: Vec<&str> = text.lines().map(|line| line.split("//").next().unwrap_or("")).collect();
        let global = |line: &&&str| line.contains(".global ") || line.contains(".const ");
        // A parameter that points to global memory says so in the same word.
        let variables = bare.iter().filter(global).filter(|line| !line.contains(".param ")).copied();
        let variables = variables.filter_map(variable).collect();
        let kernels = bare.join("\n").split(".entry ").skip(1).filter_map(kernel).collect();
        Ok(Image { kernels: Some(kernels), variables })
    }

    /// The kernel of this name; of a binary all that is known of it is the name.
    pub fn kernel(&self, name: &str) -> Option<Option<&Kernel>> {
        match &self.kernels {
            Some(kernels) => kernels.iter().find(|kernel| kernel.name == name).map(Some),
            None => Some(None),
        }
    }
}

/// The identifier that the text begins with.
fn name_of(text: &str) -> Option<&str> {
    let text = text.trim_start();
    let end = text.find(|c: char| !(c.is_alphanumeric() || "_$%".contains(c))).unwrap_or(text.len());
    (end > 0).then(|| &text[..end])
}

/// What follows `.entry`: a name and, in brackets, parameters.
fn kernel(text: &str) -> Option<Kernel> {
    let name = name_of(text)?.to_owned();
    let list = text.split_once('(').and_then(|(_, rest)| rest.split_once(')')).map_or("", |(list, _)| list);
    let mut end = 0_usize;
    let mut place = |declaration: &str| {
        let (_, bytes) = variable(declaration)?;
        let offset = end.checked_next_multiple_of(alignment(declaration)?)?;
        end = offset.checked_add(bytes)?;
        Some(Parameter { offset, bytes })
    };
    Some(Kernel { name, parameters: list.split(',').filter_map(&mut place).collect() })
}

/// What a parameter's address must be a multiple of: said for arrays, and else its size. What follows `.ptr` is
/// about the memory that it points to.
fn alignment(declaration: &str) -> Option<usize> {
    let own = declaration.split(".ptr").next()?;
    match own.split_once(".align ") {
        Some((_, rest)) => rest.split_whitespace().next()?.parse().ok().filter(|align| *align > 0),
        None => variable(declaration).map(|(_, bytes)| bytes.max(1)),
    }
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
        let names: Vec<&str> = image.kernels.iter().flatten().map(|kernel| kernel.name.as_str()).collect();
        assert_eq!(names, ["saxpy", "_Z3addv"]);
        assert_eq!(image.variables, HashMap::from([("table".to_owned(), 1024), ("factor".to_owned(), 4)]));
        assert!(image.kernel("saxpy").is_some() && image.kernel("none").is_none());
    }

    #[test]
    fn parameters_lie_as_the_compiler_lays_them() {
        let kernel = kernel(
            "k(\n.param .u64 .ptr .global .align 4 k_0,\n.param .u32 k_1,\n.param .align 8 .b8 k_2[16],\n.param .u8 k_3)",
        );
        let places: Vec<_> =
            kernel.iter().flat_map(|kernel| &kernel.parameters).map(|p| (p.offset, p.bytes)).collect();
        assert_eq!(places, [(0, 8), (8, 4), (16, 16), (32, 1)]);
    }

    #[test]
    fn a_binary_may_hold_any_kernel_and_garbage_none() {
        assert!(Image::at(c"\x7fELF".as_ptr().cast()).expect("ELF").kernel("any") == Some(None));
        assert_eq!(Image::at(c"\x01\x02\x03\x04".as_ptr().cast()), Err(CUDA_ERROR_INVALID_IMAGE));
        assert_eq!(Image::from_ptx("no header"), Err(CUDA_ERROR_INVALID_IMAGE));
    }
}
