// fmt's own code, compiled once instead of in every file that formats something (cmake/MoecommDependencies.cmake). So
// libmoecomm.so does not need libfmt.so, and fmt's symbols stay inside.
#include <fmt/format-inl.h>

template auto fmt::detail::thousands_sep_impl<char>(locale_ref) -> thousands_sep_result<char>;
template auto fmt::detail::decimal_point_impl<char>(locale_ref) -> char;
