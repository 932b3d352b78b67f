"""gin files of the offline agents; a package, so that gin finds them anywhere."""
