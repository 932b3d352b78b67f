"""What online and offline agents share."""
