"""The operators, one file each: declaration, vendor rule and kernel call. `convreg.registry.builtin` registers them."""
