"""Strict mode for every test: shapes are checked at run time, silent broadcasting is an error, NaN stops at its origin."""

from jaxtyping import install_import_hook

install_import_hook("comad", "beartype.beartype").__enter__()  # before anything of the package is imported

import jax  # noqa: E402

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_debug_nans", True)
