//! Modules and libraries: where functions come from.

use std::collections::HashMap;
use std::ffi::*;
use std::sync::Mutex;

use weir_abi::types::*;

use crate::api::Driver;
use crate::edge::{Answer, put, put_optional, text};
use crate::function::{self, Function};
use crate::image::{Image, Kernel};
use crate::registry::{Handle, Registry};
use crate::{capture, context, locked, memory};

static MODULES: Registry<Module> = Registry::new(4, CUDA_ERROR_INVALID_HANDLE);
static LIBRARIES: Registry<&'static Module> = Registry::new(5, CUDA_ERROR_INVALID_HANDLE);
/// `CU_MODULE_LAZY_LOADING`, what drivers do by default.
const LAZY: c_uint = 2;

/// A loaded image. A library is a module that belongs to no context.
pub struct Module {
    /// Its handle.
    pub handle: Handle,
    image: Image,
    functions: Mutex<HashMap<CString, &'static Function>>,
    variables: Mutex<HashMap<String, CUdeviceptr>>,
}

impl Module {
    fn load(image: *const c_void) -> Answer<&'static Module> {
        let image = Image::at(image)?;
        let made = MODULES.insert_with(|handle| Module {
            handle,
            image,
            functions: Mutex::default(),
            variables: Mutex::default(),
        });
        Ok(made?.1)
    }

    fn from_file(path: *const c_char) -> Answer<&'static Module> {
        let path = text(path)?.to_string_lossy();
        let mut bytes = std::fs::read(path.as_ref()).map_err(|_| CUDA_ERROR_FILE_NOT_FOUND)?;
        bytes.push(0);
        Self::load(bytes.as_ptr().cast())
    }

    /// The function of this name, the same one each time.
    fn function(&'static self, name: *const c_char) -> Answer<&'static Function> {
        let name = text(name)?;
        let mut functions = locked(&self.functions);
        if let Some(function) = functions.get(name) {
            return Ok(function);
        }
        let known = self.image.kernel(&name.to_string_lossy()).ok_or(CUDA_ERROR_NOT_FOUND)?;
        let function = function::create(name, self, known.map(|kernel| kernel.parameters.clone()))?;
        functions.insert(name.to_owned(), function);
        Ok(function)
    }

    /// Gives every variable its memory, as loading a module does.
    fn allocate_variables(&self) -> Answer {
        self.image.variables.keys().try_for_each(|name| self.variable(name).map(drop))
    }

    /// The variable of this name: its address and size. A library's takes device memory when first asked for: it belongs
    /// to no context until then.
    fn variable(&self, name: &str) -> Answer<(CUdeviceptr, usize)> {
        let name = name.to_owned();
        let bytes = *self.image.variables.get(&name).ok_or(CUDA_ERROR_NOT_FOUND)?;
        let mut variables = locked(&self.variables);
        if let Some(address) = variables.get(&name) {
            return Ok((*address, bytes));
        }
        let address = memory::allocate(context::current()?, bytes)?;
        variables.insert(name, address);
        Ok((address, bytes))
    }

    /// Every kernel that the image is known to have.
    fn kernels(&'static self) -> Answer<Vec<*mut c_void>> {
        let names = self.image.kernels.as_deref().unwrap_or_default();
        let handle = |kernel: &Kernel| {
            let name = CString::new(kernel.name.as_str()).map_err(|_| CUDA_ERROR_INVALID_IMAGE)?;
            Ok(self.function(name.as_ptr())?.handle.raw())
        };
        names.iter().map(handle).collect()
    }

    fn unload(&self) {
        for function in locked(&self.functions).values() {
            function.unload();
        }
        for address in locked(&self.variables).drain().map(|(_, address)| address) {
            // The variable was allocated above; a context that is gone has freed it already.
            let _gone = memory::free(address);
        }
    }
}

fn load(out: *mut CUmodule, image: *const c_void) -> Answer {
    context::current()?;
    capture::forbid_unsafe()?;
    let module = Module::load(image)?;
    if let Err(full) = module.allocate_variables() {
        MODULES.remove(module.handle.raw())?.unload();
        return Err(full);
    }
    put(out, module.handle.raw())
}

fn load_library(out: *mut CUlibrary, module: &'static Module) -> Answer {
    put(out, LIBRARIES.insert(module)?.0.raw())
}

fn put_variable(out: *mut CUdeviceptr, bytes: *mut usize, module: &Module, name: *const c_char) -> Answer {
    let (address, size) = module.variable(&text(name)?.to_string_lossy())?;
    put_optional(out, address);
    put_optional(bytes, size);
    Ok(())
}

/// Stores as many handles as the caller has room for.
fn put_handles(out: *mut *mut c_void, room: c_uint, handles: &[*mut c_void]) -> Answer {
    for (place, handle) in handles.iter().take(room as usize).enumerate() {
        put(out.wrapping_add(place), *handle)?;
    }
    Ok(())
}

fn count_of(handles: &[*mut c_void]) -> c_uint {
    c_uint::try_from(handles.len()).unwrap_or(c_uint::MAX)
}

impl Driver {
    pub fn cuModuleLoad(out: *mut CUmodule, path: *const c_char) -> Answer {
        context::current()?;
        put(out, Module::from_file(path)?.handle.raw())
    }

    pub fn cuModuleLoadData(out: *mut CUmodule, image: *const c_void) -> Answer {
        load(out, image)
    }

    pub fn cuModuleLoadDataEx(
        out: *mut CUmodule,
        image: *const c_void,
        _count: c_uint,
        _options: *mut c_uint,
        _values: *mut *mut c_void,
    ) -> Answer {
        load(out, image)
    }

    pub fn cuModuleLoadFatBinary(out: *mut CUmodule, image: *const c_void) -> Answer {
        load(out, image)
    }

    pub fn cuModuleUnload(module: CUmodule) -> Answer {
        capture::forbid_unsafe()?;
        MODULES.remove(module)?.unload();
        Ok(())
    }

    pub fn cuModuleGetFunction(out: *mut CUfunction, module: CUmodule, name: *const c_char) -> Answer {
        let found = MODULES.get(module)?.function(name);
        // As an H200's driver does: what was not found is null, and no launch takes it for what stood there before.
        put(out, found.as_ref().map_or(std::ptr::null_mut(), |function| function.handle.raw()))?;
        found.map(drop)
    }

    pub fn cuModuleGetFunctionCount(out: *mut c_uint, module: CUmodule) -> Answer {
        put(out, count_of(&MODULES.get(module)?.kernels()?))
    }

    pub fn cuModuleEnumerateFunctions(out: *mut CUfunction, room: c_uint, module: CUmodule) -> Answer {
        put_handles(out, room, &MODULES.get(module)?.kernels()?)
    }

    pub fn cuModuleGetGlobal_v2(
        out: *mut CUdeviceptr,
        bytes: *mut usize,
        module: CUmodule,
        name: *const c_char,
    ) -> Answer {
        put_variable(out, bytes, MODULES.get(module)?, name)
    }

    pub fn cuModuleGetLoadingMode(out: *mut c_uint) -> Answer {
        put(out, LAZY)
    }

    pub fn cuLibraryLoadData(
        out: *mut CUlibrary,
        image: *const c_void,
        _jit_options: *mut c_uint,
        _jit_values: *mut *mut c_void,
        _jit_count: c_uint,
        _options: *mut c_uint,
        _values: *mut *mut c_void,
        _count: c_uint,
    ) -> Answer {
        load_library(out, Module::load(image)?)
    }

    pub fn cuLibraryLoadFromFile(
        out: *mut CUlibrary,
        path: *const c_char,
        _jit_options: *mut c_uint,
        _jit_values: *mut *mut c_void,
        _jit_count: c_uint,
        _options: *mut c_uint,
        _values: *mut *mut c_void,
        _count: c_uint,
    ) -> Answer {
        load_library(out, Module::from_file(path)?)
    }

    pub fn cuLibraryUnload(library: CUlibrary) -> Answer {
        let module = LIBRARIES.remove(library)?;
        MODULES.remove(module.handle.raw())?.unload();
        Ok(())
    }

    pub fn cuLibraryGetModule(out: *mut CUmodule, library: CUlibrary) -> Answer {
        context::current()?;
        put(out, LIBRARIES.get(library)?.handle.raw())
    }

    pub fn cuLibraryGetKernel(out: *mut CUkernel, library: CUlibrary, name: *const c_char) -> Answer {
        put(out, LIBRARIES.get(library)?.function(name)?.handle.raw())
    }

    pub fn cuLibraryGetKernelCount(out: *mut c_uint, library: CUlibrary) -> Answer {
        put(out, count_of(&LIBRARIES.get(library)?.kernels()?))
    }

    pub fn cuLibraryEnumerateKernels(out: *mut CUkernel, room: c_uint, library: CUlibrary) -> Answer {
        put_handles(out, room, &LIBRARIES.get(library)?.kernels()?)
    }

    pub fn cuLibraryGetGlobal(
        out: *mut CUdeviceptr,
        bytes: *mut usize,
        library: CUlibrary,
        name: *const c_char,
    ) -> Answer {
        put_variable(out, bytes, LIBRARIES.get(library)?, name)
    }

    pub fn cuLibraryGetManaged(
        out: *mut CUdeviceptr,
        bytes: *mut usize,
        library: CUlibrary,
        name: *const c_char,
    ) -> Answer {
        put_variable(out, bytes, LIBRARIES.get(library)?, name)
    }
}
