// The option table's section of AITER's tuners.
#include "cli/tune/option_table.h"

namespace gemmtune::cli {

std::vector<TuneOption> aiter_option_rows() {
  constexpr OptionSection section = OptionSection::aiter;
  return {
      {section, "--preshuffle", &TuneOptions::preshuffle,
       "a8w8_blockscale with a packed weight, as --op a8w8_blockscale_bpreshuffle"},
      {section, "--all-bias", &TuneOptions::all_bias, "Each shape without a bias and with one (a16w16)"},
      {section, "--last", &TuneOptions::last, "Only the last shape"},
      {section, "--with-hipblaslt", &TuneOptions::with_hipblaslt,
       "Accepted: the vendor's library takes part anyway"},
      {section,
       "--blockPerCu",
       &TuneOptions::blocks_per_unit,
       "Refused: of CK Tile's kernels; --search-space has the families' parameters",
       {.value_name = "LIST"}},
      {section, "--grouped-gemm", &TuneOptions::grouped_gemm,
       "Refused: of AITER's grouped kernels; --op fused_moe tunes every family"},
      {section, "--mxfp4-flydsl", &TuneOptions::mxfp4_flydsl,
       "Refused: of AITER's FlyDSL kernels; --op fused_moe tunes every family"},
  };
}

}  // namespace gemmtune::cli
